"""What happens to requests while they wait, on a model that takes as long as it is told."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import numpy as np
import pytest
import torch

from cluster_serving.client import DeadlineExceeded, QueueFull, RequestCancelled
from cluster_serving.protocol.keys import GROUP
from tests.support.fixtures.waiting import wait_until
from tests.support.worlds import keda


class Sleeper(torch.nn.Module):
    """Sleeps for as many seconds as its input says; gives the number of its call."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        time.sleep(float(x.max()))
        return x * 0 + self.calls


@pytest.fixture(scope="module")
def sleeper(tmp_path_factory):
    """Folder of the model."""
    folder = tmp_path_factory.mktemp("sleeper")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    torch.save(Sleeper(), folder / "model.pt", pickle_module=cloudpickle)
    return folder


@pytest.fixture
def start(started, sleeper):
    """Starts a job that computes one request at a time."""

    def run(name, **settings):
        fixed = {"allowPickle": True, "inputShapes": [[1]], "maxBatchSize": 1}
        return started(jobName=name, modelPath=sleeper, **fixed | settings)

    return run


def seconds(number):
    return np.full(1, number, "f4")


def test_an_expired_request_is_told_so_and_not_computed(start):
    requests, results = start("deadline", requestDeadline=1500)
    first = int(requests.predict({"x": seconds(0)}, timeout=60)[0])
    requests.enqueue("slow", x=seconds(2), deadline=60)
    requests.enqueue("short", x=seconds(0), deadline=0.5)
    requests.enqueue("default", x=seconds(0))
    requests.enqueue("patient", x=seconds(0), deadline=60)
    assert results.query("slow", timeout=60) == first + 1
    for uri, allowed in (("short", 500), ("default", 1500)):
        with pytest.raises(DeadlineExceeded, match=f"may wait for {allowed} ms"):
            results.query(uri, timeout=60)
    assert results.query("patient", timeout=60) == first + 2


def test_a_waiting_request_can_be_cancelled_and_a_running_one_not(start, cluster_db):
    requests, results = start("cancel")
    first = int(requests.predict({"x": seconds(0)}, timeout=60)[0])
    requests.enqueue("running", x=seconds(3))
    wait_until(lambda: cluster_db.xpending("cancel", GROUP)["pending"])
    # One is being computed and one is read ahead.
    uris = [f"r{number}" for number in range(6)]
    for uri in uris:
        requests.enqueue(uri, x=seconds(0))
    wait_until(lambda: cluster_db.xpending("cancel", GROUP)["pending"] == 2)
    assert requests.cancel("running") is False
    assert [requests.cancel(uri) for uri in uris[1:]] == [True] * 5
    assert results.query("running", timeout=60) == first + 1
    assert results.query("r0", timeout=60) == first + 2
    for uri in uris[1:]:
        with pytest.raises(RequestCancelled):
            results.query(uri, timeout=60)
    assert requests.predict({"x": seconds(0)}, timeout=60) == first + 3


def test_slots_share_what_waits_for_a_slow_model(start, cluster_db):
    requests, results = start("shared", modelParallelism=2, maxBatchSize=32)
    uris = [f"r{number}" for number in range(8)]
    for duration in (0.05, 0.05, 0.05, 2):
        # How long the model takes is not known before it has computed something.
        for uri in uris:
            requests.enqueue(uri, x=seconds(duration))
        if duration > 1:
            wait_until(lambda: [c["pending"] for c in cluster_db.xpending("shared", GROUP)["consumers"]] == [4, 4])
        for uri in uris:
            results.query_and_delete(uri, timeout=60)


def test_a_bounded_queue_never_holds_more_and_everything_is_answered(start, cluster_db):
    limit = 12
    requests, results = start("bounded", maxQueueLength=limit, modelParallelism=2, maxBatchSize=4)
    longest, stopped = [0], threading.Event()

    def watch():
        while not stopped.is_set():
            longest[0] = max(longest[0], cluster_db.xlen("bounded"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: requests.enqueue(f"r{n}", x=seconds(0.001), block=True, timeout=60), range(400)))
        for number in range(400):
            assert results.query(f"r{number}", timeout=60).shape == (1,)
    finally:
        stopped.set()
        watcher.join()
    assert 4 < longest[0] <= limit
    requests.enqueue("slow", x=seconds(2))
    with pytest.raises(QueueFull, match=f"maxQueueLength is {limit}"):
        for number in range(100):
            requests.enqueue(f"s{number}", x=seconds(2))


def test_priorities_are_served_in_order_and_none_starves_while_keda_sees_them_wait(start, cluster):
    requests, results = start("priorities")
    first = int(requests.predict({"x": seconds(0)}, timeout=60)[0])
    # Long enough for all that is sent, and for the command.
    requests.enqueue("slow", x=seconds(6))
    sent = {"low": 40, "normal": 40, "high": 80}
    for priority, count in sent.items():
        for number in range(count):
            requests.enqueue(f"{priority}-{number}", x=seconds(0), priority=priority)
    scaled = keda.of_job(keda.recipe(), "priorities")
    assert (keda.length(scaled, cluster.redis_port), keda.pods(scaled, cluster.redis_port)) == (161, 2)
    status = cluster.run("cluster-serving-cli", "status", "priorities", cwd=cluster.folder / "priorities").stdout
    assert "161 requests (80 high, 41 normal, 40 low)" in " ".join(status.split())
    turn = {
        priority: [int(results.query(f"{priority}-{number}", timeout=60)[0]) - first for number in range(count)]
        for priority, count in sent.items()
    }
    assert sorted(number for turns in turn.values() for number in turns) == list(range(2, 162))
    assert all(turns == sorted(turns) for turns in turn.values()), "in order within a priority"
    assert max(turn["high"]) < max(turn["normal"]) < max(turn["low"])
    # While high requests wait, they are three of four, and the others go on nevertheless.
    assert max(turn["high"]) <= 1.6 * sent["high"]
    assert sum(number < max(turn["high"]) for number in turn["low"]) >= 3
    results.query("slow", timeout=60)
    assert (keda.length(scaled, cluster.redis_port), keda.pods(scaled, cluster.redis_port)) == (0, 1)
