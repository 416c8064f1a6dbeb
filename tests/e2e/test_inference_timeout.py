"""A model that does not return for some inputs."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from cluster_serving.client import InferenceTimeout
from cluster_serving.protocol.keys import GROUP, JobKeys
from tests.chaos.faults import kept_processes
from tests.support.fixtures.handled import write
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo


class Looping(torch.nn.Module):
    """Doubles its input; loops in native code for ever if its first number is negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        while bool((x[:, 0] < 0).any()):
            y = y * 1.0
        return y


# Waits for ever, which costs the tests that follow no core.
WAITING = """
    import threading

    class Handler:
        inputs = {"x": "float32[3]"}
        outputs = {"y": "float32[3]"}

        def predict(self, batch):
            if (batch["x"] < 0).any():
                threading.Event().wait()
            return {"y": batch["x"] * 2}
    """


def looping(folder):
    return model_zoo.save_torchscript(folder, Looping())


def waiting(folder):
    return write(folder, WAITING)


@pytest.fixture
def loops_end(cluster):
    """No loop of a TaskManager of the session takes a core from all tests that follow."""
    yield
    managers = kept_processes(cluster, "taskmanager")
    for process in managers:
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: not {*managers} & {*kept_processes(cluster, "taskmanager")})


@pytest.mark.parametrize(("mode", "save"), [("thread", looping), ("process", waiting)])
def test_a_request_that_hangs_is_answered_with_an_error_and_the_job_goes_on(
    request, started, cluster, cluster_db, tmp_path, mode, save
):
    if save is looping:
        request.getfixturevalue("loops_end")
    save(tmp_path)
    name = f"hanging-{mode}"
    requests, results = started(
        jobName=name,
        modelPath=tmp_path,
        executionMode=mode,
        inferenceTimeout=1.5,
        inputShapes=[[3]],
        maxDeliveries=3,
    )

    # More than one process puts up with, in two waves: the second finds a job that has gone on.
    for wave, hanging in (("a", {7}), ("b", {3, 4, 20, 30})):
        for number in range(40):
            requests.enqueue(f"{wave}{number}", x=np.full(3, -1 if number in hanging else number, "f4"))
        for number in range(40):
            if number in hanging:
                with pytest.raises(InferenceTimeout, match=r"within 1.5 s \(inferenceTimeout\)"):
                    results.query(f"{wave}{number}", timeout=150)
            else:
                assert results.query(f"{wave}{number}", timeout=150).tolist() == [2 * number] * 3
    assert not cluster_db.exists(JobKeys(name).dead_letters)
    assert requests.predict({"x": np.ones(3, "f4")}, timeout=60).tolist() == [2] * 3
    wait_until(lambda: cluster.state_of(name) == "RUNNING")


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_slot_on_which_a_request_hangs_keeps_no_request_of_others(started, cluster_db, tmp_path, mode):
    waiting(tmp_path)
    requests, results = started(
        jobName=f"beside-{mode}",
        modelPath=tmp_path,
        executionMode=mode,
        inferenceTimeout=12,
        modelParallelism=2,
    )

    def ask(number):
        # A request that the slot kept would wait for its timeout.
        return requests.predict({"x": np.full(3, number, "f4")}, timeout=8).tolist() == [2 * number] * 3

    assert ask(1)
    requests.enqueue("hangs", x=np.full(3, -1, "f4"))
    # Others in its batch would wait with it.
    wait_until(lambda: cluster_db.xpending(f"beside-{mode}", GROUP)["pending"])
    time.sleep(0.2)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(400)))
    with pytest.raises(InferenceTimeout):
        results.query("hangs", timeout=60)
