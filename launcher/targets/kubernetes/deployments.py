"""Flink's deployments in Kubernetes, one for each job."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import replace

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.process import wait_until
from cluster_serving.launcher.targets.applications import Application, Applications
from cluster_serving.launcher.targets.kubernetes import pods
from cluster_serving.launcher.targets.kubernetes.kubectl import Kubectl, Resource
from cluster_serving.launcher.targets.kubernetes.port_forward import PortForward

LABEL = "app.kubernetes.io/managed-by"
"""Label of everything that belongs to jobs."""

OURS = "cluster-serving"
"""Value of the label."""

JOB = "cluster-serving/job"
"""Annotation with the name of the job."""

SUBMISSION = "cluster-serving/submission"
"""Annotation with the start of the job, as in `JobOptions`."""

REST_PORT = 8081
_KINDS = "deployments,services,secrets,configmaps"
_GONE_WITHIN = 60.0
# A status of pods that is this old is asked for again: each question starts a process.
_FRESH = 1.0
_REFUSED = re.compile(r"Message: (.*?(?:forbidden|Forbidden|quota).*?)(?: Received status:|$)", re.MULTILINE)


class Deployments(Applications):
    """The serving jobs in a namespace, each of which is a deployment that Flink's client has made."""

    def __init__(self, kubectl: Kubectl) -> None:
        super().__init__()
        self._kubectl = kubectl
        self._forwards: dict[str, PortForward] = {}
        self._known: dict[str, tuple[float, Application]] = {}

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        for forward in self._forwards.values():
            forward.__exit__(*exc)

    @property
    def where(self) -> str:
        """The namespace, for messages."""
        return self._kubectl.where

    def page(self, job_id: str) -> str:
        """Return the command that brings the Flink UI here."""
        return forward_command(self._kubectl, job_id)

    def applications(self, ended: bool) -> list[Application]:
        """Return the jobs of the namespace; those that have ended are not kept."""
        if ended:
            return []
        listed = self._kubectl.labelled("deployments,pods", f"{LABEL}={OURS}")
        found = [self._application(one, listed) for one in listed if one["kind"] == "Deployment"]
        return sorted(found, key=lambda one: one.seconds)

    def application(self, id: str) -> Application:
        """Return a job with what keeps its pods from running."""
        then, known = self._known.get(id, (0.0, None))
        if known is None or time.monotonic() - then > _FRESH:
            known = self._examined(id)
            self._known[id] = time.monotonic(), known
        return known

    def remove(self, application: Application) -> None:
        """Cancel the job, delete its deployment and what belongs to it, and wait until the pods are gone."""
        with suppress(LaunchError):
            flink, job = self._inside(application)
            if flink and job:
                flink.cancel(job.id)
        self.delete(application.id)

    def delete(self, id: str) -> None:
        """Delete what belongs to an application, whether it is complete or not.

        Flink's records for a failover are config maps that outlive the deployment; the next start would find them.
        """
        if forward := self._forwards.pop(id, None):
            forward.__exit__()
        self._kubectl.delete(_KINDS, f"app={id}")
        left: list[Resource] = []

        def is_gone() -> bool:
            left[:] = self._kubectl.labelled(f"{_KINDS},pods", f"app={id}")
            if left and all(one["kind"] != "Pod" for one in left):
                # While a JobManager ends, it may write its records once more.
                self._kubectl.delete(_KINDS, f"app={id}")
            return not left

        if not wait_until(is_gone, _GONE_WITHIN):
            names = ", ".join(f"{one['kind'].lower()}/{one['metadata']['name']}" for one in left)
            raise LaunchError(
                f"after {_GONE_WITHIN:.0f} s {self.where} still has {names}; remove them with kubectl delete"
            )

    def _examined(self, id: str) -> Application:
        listed = self._kubectl.labelled("deployments,pods", f"app={id}")
        deployment = next((one for one in listed if one["kind"] == "Deployment"), None)
        if deployment is None:
            return Application(id, "", "CANCELED", 0, "", error=f"its deployment {id} was deleted")
        application = self._application(deployment, listed)
        kept = [one for one in listed if one["kind"] == "Pod" and pods.is_kept(one)]
        problem = pods.waiting_reason(self._kubectl, kept)
        error = pods.refused(deployment) or problem.error or self._refused_workers(application, kept)
        state = "FAILED" if error else application.state
        return replace(application, error=error, waits_for=problem.waits_for, state=state)

    def _application(self, deployment: Resource, listed: list[Resource]) -> Application:
        metadata = deployment["metadata"]
        id = str(metadata["name"])
        notes = deployment["spec"]["template"]["metadata"].get("annotations", {})
        managers = [
            one
            for one in listed
            if one["kind"] == "Pod"
            and one["metadata"]["labels"].get("app") == id
            and one["metadata"]["labels"].get("component") == "jobmanager"
            and pods.is_kept(one)
            and pods.is_ready(one)
        ]
        return Application(
            id=id,
            name=notes.get(JOB, id),
            state="DEPLOYED" if managers else "STARTING",
            seconds=pods.age(deployment),
            submission=notes.get(SUBMISSION, ""),
            url=self._url(id) if managers else "",
        )

    def _url(self, id: str) -> str:
        forward = self._forwards.get(id)
        if forward is None:
            forward = self._forwards[id] = PortForward(self._kubectl, f"{id}-rest", REST_PORT)
        try:
            return forward.url
        except LaunchError:
            # Its pod has just ended.
            return ""

    def _refused_workers(self, application: Application, listed: list[Resource]) -> str:
        """Return why the JobManager gets no pods for its TaskManagers; only its log has it."""
        if not application.url or any(one["metadata"]["labels"].get("component") == "taskmanager" for one in listed):
            return ""
        with suppress(LaunchError):
            log = self._kubectl.run("logs", f"deployment/{application.id}", "--tail=300")
            if found := _REFUSED.findall(log):
                return str(found[-1])
        return ""


def forward_command(kubectl: Kubectl, id: str, path: str = "") -> str:
    """Return the address of a Flink UI in Kubernetes, and the command that brings it to this machine."""
    command = f"kubectl port-forward --namespace {kubectl.namespace} service/{id}-rest {REST_PORT}"
    return f"http://localhost:{REST_PORT}{path} after: {command}"
