"""The slots of a job over several TaskManagers, on a cluster of its own."""

import os
import signal
from collections import Counter
from threading import Event, Thread

import httpx
import numpy as np
import redis

from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import read_reports
from tests.chaos.faults import kept_processes
from tests.support.fixtures.predictor import save_doubling
from tests.support.fixtures.waiting import PAUSE_S, wait_until


def test_the_slots_of_a_job_are_spread_as_the_configuration_says(own_cluster, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    save_doubling(model, 3)
    # As with a command called by its path: no Python of its environment is on the PATH.
    with own_cluster.variables(PATH="/usr/bin:/bin"):
        done = own_cluster.start(jobName="spread", modelPath=model, modelParallelism=4, slotsPerTaskManager=2)
    assert done.returncode == 0, done.stdout + done.stderr
    managers = httpx.get(f"{own_cluster.rest}/taskmanagers").json()["taskmanagers"]
    assert [(manager["slotsNumber"], manager["freeSlots"]) for manager in managers] == [(2, 0), (2, 0)]
    requests, results = own_cluster.queues("spread")
    with requests, results:
        for number in range(40):
            requests.enqueue(f"r{number}", x=np.full(3, number, "f4"))
        for number in range(40):
            assert results.query(f"r{number}", timeout=60).tolist() == [2 * number] * 3


def test_a_task_manager_that_dies_or_hangs_leaves_the_others_alone(own_cluster, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    save_doubling(model, 3)
    done = own_cluster.start(jobName="apart", modelPath=model, modelParallelism=2, slotsPerTaskManager=1)
    assert done.returncode == 0, done.stdout + done.stderr
    job, outcomes, answered, ended = own_cluster.job("apart"), Counter(), Counter(), Event()

    def client(number):
        requests, _ = own_cluster.queues("apart")
        with requests:
            while not ended.wait(PAUSE_S):
                # An answer that took as long as Flink needs to notice would be an error.
                answer = requests.predict({"x": np.full(3, number, "f4")}, timeout=20)
                outcomes[bool((answer == 2 * number).all())] += 1
                answered[number] += 1

    def restarts():
        with redis.Redis(port=own_cluster.redis_port) as db:
            return sorted(report.restarts for report in read_reports(db.hgetall(JobKeys("apart").slots())))

    def slots():
        overview = httpx.get(f"{own_cluster.rest}/overview").json()
        return overview["slots-total"], overview["slots-available"]

    clients = [Thread(target=client, args=(number,)) for number in range(4)]
    for one in clients:
        one.start()
    hanging = None
    try:
        wait_until(lambda: outcomes[True] > 100, 60)
        for fault in (signal.SIGKILL, signal.SIGSTOP):
            wait_until(lambda: slots() == (2, 0), 60)
            first, _ = kept_processes(own_cluster, "taskmanager")
            before, earlier = answered.copy(), restarts()
            hanging = first if fault == signal.SIGSTOP else None
            os.kill(first, fault)
            # A client may have had one answer on its way. All requests are taken over before the slot is back.
            wait_until(lambda before=before: all(answered[number] > before[number] + 1 for number in range(4)), 60)
            assert restarts() == earlier
            so_far = outcomes[True]
            wait_until(lambda so_far=so_far: outcomes[True] > so_far + 500, 60)
            vertices = httpx.get(f"{own_cluster.rest}/jobs/{job['jid']}").json()["vertices"]
            assert [vertex["tasks"]["RUNNING"] >= 1 for vertex in vertices] == [True, True]
            so_far = outcomes[True]
            wait_until(lambda so_far=so_far: outcomes[True] > so_far + 200, 60)
    finally:
        ended.set()
        for one in clients:
            one.join()
        if hanging:
            os.kill(hanging, signal.SIGCONT)
    assert outcomes[False] == 0
    # Flink has restarted one slot each time: another job id, or a restart of all, would say so.
    assert own_cluster.job("apart")["jid"] == job["jid"]


def test_with_the_adaptive_scheduler_the_slots_that_are_left_take_over_the_requests_of_the_others(
    own_cluster, tmp_path
):
    """Flink runs the job with one slot until there are two again; each time it starts all slots anew."""
    model = tmp_path / "model"
    model.mkdir()
    save_doubling(model, 3)
    done = own_cluster.start(
        jobName="adaptive",
        modelPath=model,
        modelParallelism=2,
        slotsPerTaskManager=1,
        flink={"options": {"jobmanager.scheduler": "adaptive"}},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    right, wrong, ended = Counter(), [], Event()

    def client(number):
        requests, _ = own_cluster.queues("adaptive")
        with requests:
            while not ended.wait(PAUSE_S):
                answer = requests.predict({"x": np.full(3, number, "f4")}, timeout=60)
                right[number] += bool((answer == 2 * number).all())
                wrong.extend([answer] if (answer != 2 * number).any() else [])

    clients = [Thread(target=client, args=(number,)) for number in range(4)]
    for one in clients:
        one.start()
    try:
        wait_until(lambda: right.total() > 100, 60)
        first, _ = kept_processes(own_cluster, "taskmanager")
        os.kill(first, signal.SIGKILL)
        # Every client goes on: one whose request had been lost would wait for 60 s, and then fail.
        before = right.copy()
        wait_until(lambda: all(right[number] > before[number] + 50 for number in range(4)), 50)
        wait_until(lambda: httpx.get(f"{own_cluster.rest}/overview").json()["slots-total"] == 2, 60)
        before = right.copy()
        wait_until(lambda: all(right[number] > before[number] + 50 for number in range(4)), 50)
    finally:
        ended.set()
        for one in clients:
            one.join()
    assert not wrong
