"""The target `kubernetes-session`: a Flink session cluster in Kubernetes, which others have started."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import state
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.launcher.services.process import locked
from cluster_serving.launcher.targets.base import check_redis
from cluster_serving.launcher.targets.kubernetes import pods
from cluster_serving.launcher.targets.kubernetes.deployments import REST_PORT, forward_command
from cluster_serving.launcher.targets.kubernetes.keys import KubernetesKeys, of
from cluster_serving.launcher.targets.kubernetes.kubectl import Kubectl
from cluster_serving.launcher.targets.kubernetes.port_forward import PortForward
from cluster_serving.launcher.targets.session import Session


class KubernetesSession(Session):
    """The session cluster `flink.clusterId`; its JobManager gets a pod for each TaskManager that a job needs."""

    keys = KubernetesKeys

    def __init__(self, config: Config) -> None:
        own = of(config)
        if not own.flink_cluster_id:
            raise LaunchError(
                "flink.target: kubernetes-session needs flink.clusterId, the kubernetes.cluster-id of the cluster"
            )
        self._kubectl = Kubectl(own.flink_context, own.flink_namespace)
        forward = _forward(own.flink_context, self._kubectl.namespace, own.flink_cluster_id)
        try:
            url = forward.url
        except LaunchError as error:
            raise LaunchError(f"{error}; set flink.clusterId to the kubernetes.cluster-id of a cluster") from None
        # The address is one of this machine; the interpreter is not.
        options = {"python.executable": "python"} | config.flink_options
        super().__init__(config.model_copy(update={"flink_rest_url": url, "flink_options": options}))
        # The address changes with each command.
        name = f"kubernetes-{self._kubectl.namespace}-{own.flink_cluster_id}"
        self.home = FlinkHome(state.root() / name)

    def flink(self) -> FlinkRest:
        """Return a client for the jobs of the cluster."""
        return _SessionRest(self.config, self._kubectl)

    def submitting(self) -> AbstractContextManager[None]:
        """Let one command of this machine at a time submit jobs to the cluster."""
        return locked(self.home.path.with_name(f"submission-{self.home.path.name}"), say)

    def check(self) -> None:
        """Check that the cluster answers, and that its pods can reach Redis."""
        with self.flink() as flink:
            if flink.overview() is None:
                raise LaunchError(f"{flink.where} does not answer; if its JobManager is starting, try again in seconds")
        super().check()
        check_redis(self.config, "pods")

    @contextmanager
    def slots(self, needed: int) -> Iterator[None]:
        """Provide nothing: Flink itself asks Kubernetes for pods."""
        yield


class _SessionRest(FlinkRest):
    """A client whose messages name the cluster instead of this command's way to it."""

    def __init__(self, config: Config, kubectl: Kubectl) -> None:
        super().__init__(config.flink_rest_url)
        self._id = of(config).flink_cluster_id
        self._kubectl = kubectl

    @property
    def where(self) -> str:
        return f"Flink {self._id} in {self._kubectl.where}"

    @property
    def place(self) -> str:
        # The address is that of this command's way.
        return self.where

    def waits_for(self, _: str) -> str:
        found = pods.waiting_reason(
            self._kubectl, self._kubectl.labelled("pods", f"app={self._id},component=taskmanager")
        )
        return found.error or found.waits_for

    def page(self, job_id: str) -> str:
        return forward_command(self._kubectl, self._id, f"/#/job/running/{job_id}")


@cache
def _forward(context: str, namespace: str, cluster: str) -> PortForward:
    """Return the one way of this command to a cluster, which lasts as long as the command."""
    forward = PortForward(Kubectl(context, namespace), f"{cluster}-rest", REST_PORT)
    atexit.register(forward.__exit__)
    return forward
