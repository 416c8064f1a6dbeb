"""Killing what runs, under load: every request is answered, each with its own result.

`make chaos` does much more of this.
"""

import json
import os
import signal

import numpy as np
import pytest

from tests.chaos.faults import kept_processes, python_workers
from tests.chaos.load import Load
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo


@pytest.fixture
def double(started, tmp_path):
    """Starts a job whose model doubles its input, as `Load` expects."""

    def start(mode, slots):
        from openvino import opset13 as ops

        x = ops.parameter([-1, -1], np.float64, name="x")
        model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.multiply(x, ops.constant(np.float64(2)))})
        started(jobName="recovery", modelPath=tmp_path, modelParallelism=slots, executionMode=mode, maxDeliveries=20)

    return start


@pytest.mark.parametrize("victim", ["taskmanager", "jobmanager", "redis"])
def test_every_request_is_answered_though_a_process_is_killed(cluster, double, victim):
    double("thread", 2)
    assert_nothing_is_lost(cluster, lambda: kill_all(kept_processes(cluster, victim)))


def test_a_job_that_cannot_come_back_keeps_no_other_from_it_and_is_tried_again(cluster, double):
    double("thread", 1)
    (records,) = cluster.state.glob("flink-*/jobs")
    (record,) = records.glob("recovery@*.json")
    options = json.loads(record.read_text())
    other = options | {"submission": "another", "redis": options["redis"] | {"job": "another"}}
    wrong = other | {"redis": other["redis"] | {"url": "nonsense"}}
    (records / "another@1.json").write_text(json.dumps(wrong))
    kill_all(kept_processes(cluster, "jobmanager"))
    wait_until(lambda: cluster.state_of("recovery") == "RUNNING", 120)
    assert not cluster.state_of("another")
    (records / "another@1.json").write_text(json.dumps(other))
    wait_until(lambda: cluster.state_of("another") == "RUNNING", 120)
    cluster.run("cluster-serving-stop", "another", cwd=cluster.folder / "recovery")


def test_a_python_worker_that_dies_costs_no_request_and_no_taskmanager(cluster, double):
    double("process", 1)
    before = kept_processes(cluster, "taskmanager")
    assert_nothing_is_lost(cluster, lambda: kill_all(python_workers(cluster)))
    assert kept_processes(cluster, "taskmanager") == before


def test_status_says_what_runs_while_a_taskmanager_is_replaced_and_keeps_no_error_afterwards(cluster, double):
    double("thread", 1)

    def status():
        return json.loads(
            cluster.run("cluster-serving-cli", "status", "--json", cwd=cluster.folder / "recovery").stdout
        )

    kill_all(kept_processes(cluster, "taskmanager"))
    seen = []

    def is_back():
        seen.append(status())
        return seen[-1]["models"][0]["restarts"] == 1 and seen[-1]["state"] == "RUNNING"

    wait_until(lambda: status()["state"] == "RESTARTING", 60)
    wait_until(is_back, 120)
    *during, after = seen
    assert all(each["error"] and each["error_time"] for each in during if each["state"] == "RESTARTING")
    assert (after["restarts"], after["ready"], after["error"], after["error_time"]) == (1, 1, "", None)


def kill_all(victims):
    assert victims
    for pid in victims:
        os.kill(pid, signal.SIGKILL)


def assert_nothing_is_lost(cluster, fault):
    load = Load("recovery", cluster.redis_port)
    counts = load.ledger.counts
    wait_until(lambda: counts["answered"] > 200, 60)
    fault()
    accepted = counts["accepted"]
    # Requests that were sent after the fault are answered, too.
    wait_until(lambda: counts["answered"] > accepted + 500, 120)
    load.stop()
    assert (counts["answered"], counts["wrong"], counts["stuck"]) == (counts["accepted"], 0, 0)
    wait_until(lambda: cluster.state_of("recovery") == "RUNNING", 90)
