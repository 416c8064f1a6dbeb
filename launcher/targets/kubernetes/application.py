"""The target `kubernetes-application`: a Flink of its own in Kubernetes for each job, started by Flink's client."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import memory
from cluster_serving.launcher.services.flink_cause import cause
from cluster_serving.launcher.shipping import bundle
from cluster_serving.launcher.targets import submission
from cluster_serving.launcher.targets.applications import Manager
from cluster_serving.launcher.targets.base import check_redis
from cluster_serving.launcher.targets.kubernetes import pod_templates
from cluster_serving.launcher.targets.kubernetes.claim import Claim, name_of
from cluster_serving.launcher.targets.kubernetes.deployments import JOB, LABEL, OURS, SUBMISSION, Deployments
from cluster_serving.launcher.targets.kubernetes.keys import KubernetesKeys, of
from cluster_serving.launcher.targets.kubernetes.kubectl import Kubectl
from cluster_serving.launcher.targets.kubernetes.pod_templates import (
    ENTRY,
    MODEL_FOLDER,
    OPTIONS,
    SECRET_FOLDER,
    VOLUME_FOLDER,
    Pods,
)

USES = "cluster-serving/uses"
"""Annotation with the folders of the volume that the job uses, separated by blanks."""

_SMALL = 900_000
"""Bytes of a model that fits into a Secret, beside the options; Kubernetes takes 1 MiB."""

_ROLES = ("jobmanager", "taskmanager")
_LABELS = {f"kubernetes.{role}.{kind}" for role in _ROLES for kind in ("labels", "annotations")}

_KEYS = {
    "kubernetes.cluster-id": "it is made of jobName",
    "kubernetes.namespace": "use flink.namespace",
    "kubernetes.context": "use flink.context",
    "kubernetes.container.image.ref": "use flink.image",
    "kubernetes.service-account": "use flink.serviceAccount",
    "kubernetes.entry.path": "the entry point of the pods checks what the image must have",
}
"""Options of Flink that the launcher alone sets, and the remedy."""

_FROM_IMAGE = "python"


class KubernetesApplication(Manager):
    """Flink's native application mode: the JobManager asks Kubernetes for the pods of TaskManagers itself."""

    keys = KubernetesKeys
    service = "kubernetes"

    def __init__(self, config: Config) -> None:
        self._templates = {role: pod_templates.given(config.flink_options, role) for role in _ROLES}
        options = config.flink_options
        self._labels = {key: str(value) for key, value in options.items() if key in _LABELS}
        merged = {key for key in options if key in _LABELS or key.startswith(pod_templates.OPTION)}
        others = {key: value for key, value in options.items() if key not in merged}
        super().__init__(config.model_copy(update={"flink_options": others}))
        self._given = own = of(config)
        self._kubectl = Kubectl(own.flink_context, own.flink_namespace)

    @classmethod
    def ships(cls, config: Config) -> str:
        """Return that images have the packages, unless there is a volume to which they are copied."""
        return "environment" if of(config).flink_volume else "model"

    def flink(self) -> Deployments:
        """Return a client for the jobs of the namespace."""
        return Deployments(self._kubectl)

    def is_up(self) -> bool:
        """Return True if Kubernetes answers."""
        with suppress(LaunchError):
            self._kubectl.labelled("deployments", f"{LABEL}={OURS}")
            return True
        return False

    def check(self) -> None:
        """Check that Kubernetes has what the pods need, and that they can reach Redis."""
        config, kubectl = self.config, self._kubectl
        for key in _KEYS.keys() & config.flink_options.keys():
            raise LaunchError(f"flink.options: {key} cannot be set: {_KEYS[key]}")
        if not self._given.flink_image:
            raise LaunchError(
                "flink.target: kubernetes-application needs flink.image, the image of the pods: one with "
                "cluster-serving, or any with Flink 2.3 together with flink.volume "
                "(docs/how-to/deploy/kubernetes-commands.md)"
            )
        check_redis(config, "pods")
        self._check_way()
        self._needs("namespace", kubectl.namespace, "flink.namespace")
        self._needs("serviceaccount", self._given.flink_service_account, "flink.serviceAccount")
        if self._given.flink_volume:
            self._needs("persistentvolumeclaim", self._given.flink_volume, "flink.volume")
        self._check_rights()

    def submit(self, options: JobOptions) -> str:
        """Copy what the job needs to the cluster, and let Flink's client start a deployment for it."""
        loaded = bundle.load(self.config.ships, options)
        name = _id(options)
        try:
            return self._deploy(name, options, loaded)
        except BaseException:
            # Also after Ctrl-C: nothing is left behind.
            with suppress(LaunchError):
                self.flink().delete(name)
            raise

    def _needs(self, kind: str, name: str, key: str) -> None:
        try:
            found = self._kubectl.get(kind, name)
        except LaunchError as error:
            if "Forbidden" in str(error):
                # It may be there: this user has rights for other things.
                return
            raise
        if found is None:
            raise LaunchError(f"{self._kubectl.where} has no {kind} {name} ({key})")

    def _check_rights(self) -> None:
        """Check that the JobManager may create pods, if this user may ask for it."""
        account = self._given.flink_service_account
        user = f"system:serviceaccount:{self._kubectl.namespace}:{account}"
        answer = ""
        with suppress(LaunchError):
            answer = self._kubectl.run("auth", "can-i", "create", "pods", "--as", user, "-q")
            return
        with suppress(LaunchError):
            answer = self._kubectl.run("auth", "can-i", "impersonate", "serviceaccounts")
        if answer.strip() == "yes":
            raise LaunchError(
                f"service account {account} (flink.serviceAccount) may not create pods, as a JobManager does: run "
                f"kubectl create rolebinding {account}-edit --clusterrole=edit --namespace {self._kubectl.namespace} "
                f"--serviceaccount={self._kubectl.namespace}:{account}"
            )

    def _check_way(self) -> None:
        """Check that there is a way for what ships."""
        ships, folder = self.config.ships, Path(self.config.model_path)
        if self._given.flink_volume or ships == "nothing" or (ships == "model" and "://" in self.config.model_path):
            return
        if ships != "model":
            raise LaunchError(
                f"flink.ship: {ships} needs flink.volume, a PersistentVolumeClaim that all pods can read; or use an "
                "image with cluster-serving and flink.ship: model"
            )
        size = memory.size_of(folder)
        if size > _SMALL:
            raise LaunchError(
                f"the model in {folder} has {size / 1e6:.1f} MB, too much for a Secret of Kubernetes. Name a "
                "PersistentVolumeClaim in flink.volume, set modelPath to a URL, or put the model into the image and "
                "set flink.ship: nothing"
            )

    def _deploy(self, name: str, options: JobOptions, loaded: bundle.Bundle) -> str:
        files: dict[str, Path] = {}
        folders: list[str] = []
        shipped = options
        if self._given.flink_volume and loaded.archives:
            self._copy(name, loaded)
            folders = [f"{VOLUME_FOLDER}/{name_of(archive)}" for archive in loaded.archives]
            if loaded.model:
                shipped = bundle.moved(options, f"{VOLUME_FOLDER}/{name_of(loaded.model)}")
        elif loaded.model:
            files = _files(Path(options.model.path))
            shipped = bundle.moved(options, MODEL_FOLDER)
        python, environment = loaded.python(lambda archive: f"{VOLUME_FOLDER}/{name_of(archive)}") or (_FROM_IMAGE, {})
        environment |= {
            "CLUSTER_SERVING_PYTHON": python,
            "CLUSTER_SERVING_MODE": options.execution_mode,
            "CLUSTER_SERVING_FOLDERS": " ".join(folders),
        }
        keys = {f"model-{index}": path for index, path in enumerate(files)}
        pods = Pods(name, self._given.flink_volume if folders else "", keys, environment)
        self._kubectl.create(_secret(name, shipped, {key: files[path] for key, path in keys.items()}))
        say(f"Submitting job {options.redis.job}")
        log = self.home.log_of(options.redis.job)
        self.prepare(options, self._settings(name, options, python, folders) | self._write(pods))
        output = submission.run(
            self.home,
            [
                "run",
                "-d",
                "-t",
                "kubernetes-application",
                *submission.MAIN,
                "--options-file",
                f"{SECRET_FOLDER}/{OPTIONS}",
            ],
            log,
            self.config.start_timeout,
        )
        deployment = self._kubectl.get("deployment", name)
        if deployment is None:
            raise LaunchError(f"the job was not accepted: {cause(output)} (output: {log})")
        self._own(name, deployment["metadata"]["uid"])
        return name

    def _copy(self, name: str, loaded: bundle.Bundle) -> None:
        claim = Claim(self._kubectl, self._given.flink_volume, f"{name}-copy", self.config.start_timeout)
        with claim.mounted(self._given.flink_image, {"app": name, LABEL: OURS}, self._templates["taskmanager"]):
            for archive in loaded.archives:
                claim.put(archive)
            deployments = self._kubectl.labelled("deployments", f"{LABEL}={OURS}")
            notes = [one["spec"]["template"]["metadata"].get("annotations", {}) for one in deployments]
            kept = {folder for note in notes for folder in note.get(USES, "").split()}
            claim.prune({name_of(archive) for archive in loaded.archives}, kept)

    def _write(self, pods: Pods) -> dict[str, Any]:
        """Write the templates of the pods. Return Flink's options that name the files."""
        self.home.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings = {}
        for role in _ROLES:
            file = self.home.path / f"{role}-pod.yaml"
            file.write_text(yaml.safe_dump(pods.template(role, self._templates[role])), "utf8")
            settings[f"{pod_templates.OPTION}.{role}"] = str(file)
        return settings

    def _settings(self, name: str, options: JobOptions, python: str, folders: list[str]) -> dict[str, Any]:
        config = self.config
        labels = {LABEL: OURS}
        notes = {
            JOB: options.redis.job,
            SUBMISSION: options.submission,
            USES: " ".join(Path(folder).name for folder in folders),
        }
        slots = min(config.slots_per_task_manager, options.model_parallelism)
        settings: dict[str, Any] = {
            "kubernetes.cluster-id": name,
            "kubernetes.namespace": self._kubectl.namespace,
            "kubernetes.container.image.ref": self._given.flink_image,
            "kubernetes.service-account": self._given.flink_service_account,
            "kubernetes.entry.path": f"{SECRET_FOLDER}/{ENTRY}",
            "python.executable": python,
            "python.client.executable": python,
            # Requests of processor time, beside which a pod may use what is free: a JobManager needs it to start.
            "kubernetes.jobmanager.cpu.amount": 0.25,
            "kubernetes.jobmanager.cpu.limit-factor": 8.0,
            "kubernetes.taskmanager.cpu.amount": float(slots * options.model.thread_per_model),
            "kubernetes.taskmanager.cpu.limit-factor": 2.0,
        }
        if self._kubectl.context:
            settings["kubernetes.context"] = self._kubectl.context
        for role in _ROLES:
            for key, ours in ((f"kubernetes.{role}.labels", labels), (f"kubernetes.{role}.annotations", notes)):
                settings[key] = _pairs(self._labels.get(key, "")) | ours
        return settings

    def _own(self, name: str, uid: str) -> None:
        """Let the Secret end with its deployment, whoever deletes that."""
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": uid}
        patch = yaml.safe_dump({"metadata": {"ownerReferences": [owner]}})
        self._kubectl.run("patch", "secret", name, "--type=merge", f"--patch={patch}")


def _id(options: JobOptions) -> str:
    """Return the name of the deployment: at most 45 characters, as Flink wants, and another one for each start."""
    words = re.sub(r"[^a-z0-9]+", "-", options.redis.job.lower()).strip("-")[:24].strip("-")
    job = hashlib.sha256(options.redis.job.encode()).hexdigest()[:4]
    return "-".join(part for part in ("serving", words, job, options.submission[:6]) if part)


def _pairs(text: str) -> dict[str, str]:
    """Return the pairs of an option of Flink that is written as `key:value,key:value`."""
    pairs = (part.partition(":") for part in text.split(",") if part.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _files(folder: Path) -> dict[str, Path]:
    """Return the files of a small model by their paths in the folder."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {str(file.relative_to(folder)): file for file in files if not file.name.startswith(".")}


def _secret(name: str, options: JobOptions, model: Mapping[str, Path]) -> dict[str, Any]:
    contents = {OPTIONS: options.to_json().encode(), ENTRY: pod_templates.entry().encode()}
    contents |= {key: path.read_bytes() for key, path in model.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {"app": name, LABEL: OURS}},
        "data": {key: base64.b64encode(content).decode() for key, content in contents.items()},
    }
