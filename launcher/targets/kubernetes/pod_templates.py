"""The pods of a job: what Flink's client is to add to them, on top of a template of the user."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cluster_serving.launcher.errors import LaunchError

OPTION = "kubernetes.pod-template-file"
"""Flink's option for a file with a template; `.default`, `.jobmanager` and `.taskmanager` follow."""

CONTAINER = "flink-main-container"
"""Flink's name for the container of a pod that runs Flink."""

SECRET_FOLDER = "/etc/cluster-serving"  # noqa: S105 - a path
OPTIONS = "options.json"
ENTRY = "entry.sh"
VOLUME_FOLDER = "/cluster-serving"
MODEL_FOLDER = "/etc/cluster-serving-model"

_ENTRY = Path(__file__).with_name("pod_entry.sh")


@dataclass(frozen=True, slots=True)
class Pods:
    """What the pods of a job have.

    Attributes:
        secret: Name of the Secret with the options of the job and the entry point.
        volume: Name of a PersistentVolumeClaim; empty for none.
        model: Files of a small model in the Secret, by their keys there.
        environment: Environment variables.
    """

    secret: str
    volume: str = ""
    model: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def template(self, role: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the template of a `jobmanager` or a `taskmanager`, as the user's with what the job needs.

        Only the JobManager gets the options, which may hold a password: the main program runs there.
        """
        template = copy.deepcopy(dict(given)) or {"apiVersion": "v1", "kind": "Pod"}
        template.setdefault("metadata", {}).setdefault("name", "template")
        spec = template.setdefault("spec", {})
        containers = spec.setdefault("containers", [])
        main = next((one for one in containers if one.get("name") == CONTAINER), None)
        if main is None:
            main = {"name": CONTAINER}
            containers.append(main)
        # The end of the log becomes part of the pod's status, and so the reason of a failure.
        main.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
        main.setdefault("env", []).extend({"name": key, "value": value} for key, value in self.environment.items())
        volumes, mounts = spec.setdefault("volumes", []), main.setdefault("volumeMounts", [])
        files = [ENTRY, OPTIONS] if role == "jobmanager" else [ENTRY]
        if role == "jobmanager":
            main.setdefault("readinessProbe", {"tcpSocket": {"port": 8081}, "periodSeconds": 1, "failureThreshold": 30})
        items = [{"key": name, "path": name, "mode": 0o555 if name == ENTRY else 0o444} for name in files]
        volumes.append({"name": "cluster-serving-job", "secret": {"secretName": self.secret, "items": items}})
        mounts.append({"name": "cluster-serving-job", "mountPath": SECRET_FOLDER, "readOnly": True})
        if self.volume:
            claim = {"claimName": self.volume, "readOnly": True}
            volumes.append({"name": "cluster-serving", "persistentVolumeClaim": claim})
            mounts.append({"name": "cluster-serving", "mountPath": VOLUME_FOLDER, "readOnly": True})
        if self.model:
            items = [{"key": key, "path": path} for key, path in self.model.items()]
            volumes.append({"name": "cluster-serving-model", "secret": {"secretName": self.secret, "items": items}})
            mounts.append({"name": "cluster-serving-model", "mountPath": MODEL_FOLDER, "readOnly": True})
        return template


def entry() -> str:
    """Return the entry point of the pods: it checks what an image must have, and then starts Flink."""
    return _ENTRY.read_text("utf8")


def given(options: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return the user's template for a role, which `flink.options` name; empty if there is none.

    Raises:
        LaunchError: If the file is not a template of a pod.
    """
    path = options.get(f"{OPTION}.{role}") or options.get(f"{OPTION}.default")
    if not path:
        return {}
    try:
        template = yaml.safe_load(Path(os.path.expanduser(path)).read_text("utf8"))
    except (OSError, yaml.YAMLError) as error:
        raise LaunchError(f"flink.options: {OPTION}: {path} cannot be read: {error}") from None
    if not isinstance(template, dict) or template.get("kind") != "Pod":
        raise LaunchError(f"flink.options: {OPTION}: {path} must be a template of kind Pod")
    return template
