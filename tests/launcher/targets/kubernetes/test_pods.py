import time
from datetime import datetime, timezone

import pytest

from cluster_serving.launcher.targets.kubernetes import pods


class NoEvents:
    """A namespace in which nothing has happened yet."""

    def events(self, name):
        return []


def stamp(seconds_ago=0):
    return datetime.fromtimestamp(time.time() - seconds_ago, timezone.utc).isoformat().replace("+00:00", "Z")


def pod(phase="Pending", **status):
    return {"metadata": {"name": "one", "creationTimestamp": stamp()}, "status": {"phase": phase, **status}}


def container(**state):
    return {"containerStatuses": [{"name": "main", "image": "an-image:1", **state}]}


def unschedulable(seconds):
    condition = {"type": "PodScheduled", "status": "False", "message": "too few", "lastTransitionTime": stamp(seconds)}
    return pod(conditions=[condition])


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}, "no such image"),
        ({"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}, "memory.process.size"),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 1, "message": "no\nPython"}},
            },
            "no Python",
        ),
    ],
)
def test_a_container_that_does_not_start_is_an_error(state, words):
    assert words in pods.waiting_reason(NoEvents(), [pod(**container(**state))]).error


@pytest.mark.parametrize(
    "state", [{"state": {"waiting": {"reason": "ContainerCreating"}}}, {"state": {"terminated": {"exitCode": 0}}}]
)
def test_a_container_that_is_being_made_or_has_done_its_work_is_none(state):
    assert pods.waiting_reason(NoEvents(), [pod(**container(**state))]) == pods.WaitingReason()


def test_a_pod_that_answers_has_no_reason_to_wait_although_its_container_has_ended_before():
    ready = [{"type": "Ready", "status": "True"}]
    ended = container(state={"running": {}}, lastState={"terminated": {"exitCode": 1}})
    assert pods.waiting_reason(NoEvents(), [pod("Running", conditions=ready, **ended)]) == pods.WaitingReason()


def test_a_pod_may_wait_a_while_for_a_node():
    assert pods.waiting_reason(NoEvents(), [unschedulable(1)]) == pods.WaitingReason(
        waits_for="a node for pod one: too few"
    )
    assert "too few" in pods.waiting_reason(NoEvents(), [unschedulable(120)]).error
