"""What keeps the pods of an application from running, in words."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from cluster_serving.launcher.targets.kubernetes.kubectl import Kubectl, Resource

_NEVER_STARTS = {
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
}
_TIMEOUT_S = 30.0
"""Seconds that a pod may wait for a node before its application counts as failed; a new node may be on its way."""

_SETTLED = 10.0
"""Seconds after which all that Flink's client has made for a pod is there, such as config maps."""


@dataclass(frozen=True, slots=True)
class WaitingReason:
    """Reason for which pods do not answer yet, or never will.

    Attributes:
        error: A problem that does not go away by itself; empty if there is none.
        waits_for: A problem that may go away; empty if there is none.
    """

    error: str = ""
    waits_for: str = ""


def waiting_reason(kubectl: Kubectl, pods: Iterable[Resource]) -> WaitingReason:
    """Return the first problem of pods that does not go away, or else the first that may."""
    found = [one for pod in pods for one in _of_pod(kubectl, pod)]
    return next((one for one in found if one.error), found[0] if found else WaitingReason())


def refused(deployment: Resource) -> str:
    """Return why Kubernetes creates no pods for a deployment, such as a quota; empty if it does."""
    for condition in deployment.get("status", {}).get("conditions", ()):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return str(condition.get("message") or condition.get("reason"))
    return ""


def is_ready(pod: Resource) -> bool:
    """Return True if a pod answers."""
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod.get("status", {}).get("conditions", ())
    )


def is_kept(pod: Resource) -> bool:
    """Return True if nobody has deleted the pod."""
    return "deletionTimestamp" not in pod["metadata"]


def age(resource: Resource) -> float:
    """Return the seconds since the creation of a resource."""
    return _since(resource["metadata"]["creationTimestamp"])


def _since(stamp: str) -> float:
    return time.time() - datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def _of_pod(kubectl: Kubectl, pod: Resource) -> Iterator[WaitingReason]:
    name, status = pod["metadata"]["name"], pod.get("status", {})
    if is_ready(pod):
        return
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        if problem := _of_container(container):
            yield WaitingReason(error=f"pod {name}: {problem}")
    if status.get("phase") != "Pending":
        return
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            text = f"a node for pod {name}: {condition.get('message') or condition.get('reason')}"
            is_late = _since(condition["lastTransitionTime"]) > _TIMEOUT_S
            if is_late and not _is_scaled(kubectl, name):
                yield WaitingReason(error=f"there is no node for pod {name}: {condition.get('message')}")
            yield WaitingReason(waits_for=text)
            return
    if age(pod) < _SETTLED:
        return
    events = kubectl.events(name)
    warnings = [event for event in events if event.get("type") == "Warning" and event.get("reason") != "Unhealthy"]
    if warnings:
        yield WaitingReason(waits_for=f"pod {name}: {warnings[-1].get('message')}")


def _of_container(container: Resource) -> str:
    waiting = container.get("state", {}).get("waiting") or {}
    if waiting.get("reason") in _NEVER_STARTS:
        return f"{waiting['reason']}: {waiting.get('message', '')} ({container.get('image')})"
    ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated") or {}
    if not ended.get("exitCode"):
        return ""
    said = " ".join(str(ended.get("message") or "").split())
    if ended.get("reason") == "OOMKilled":
        said = "its memory was not enough; set taskmanager.memory.process.size in flink.options"
    return f"ended with exit code {ended['exitCode']} ({ended.get('reason', 'Error')}): {said or 'no message'}"


def _is_scaled(kubectl: Kubectl, name: str) -> bool:
    """Return True if the cluster is adding a node for a pod."""
    return any(event.get("reason") == "TriggeredScaleUp" for event in kubectl.events(name))
