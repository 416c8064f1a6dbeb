"""What happens to requests while they wait, on a model that takes as long as it is told."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cluster_serving.client import DeadlineExceeded, QueueFull, RequestCancelled
from cluster_serving.protocol.keys import GROUP
from tests.support.fixtures import sleeper
from tests.support.fixtures.sleeper import seconds
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def start(served, tmp_path):
    """Starts a job that computes one request at a time."""

    def run(name, **settings):
        return served(jobName=name, modelPath=sleeper.write_to(tmp_path), **{"maxBatchSize": 1} | settings)

    return run


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


def test_a_waiting_request_can_be_cancelled_and_a_running_one_not(start, db):
    requests, results = start("cancel")
    first = int(requests.predict({"x": seconds(0)}, timeout=60)[0])
    requests.enqueue("running", x=seconds(3))
    wait_until(lambda: db.xpending("cancel", GROUP)["pending"])
    # One is being computed and one is read ahead.
    uris = [f"r{number}" for number in range(6)]
    for uri in uris:
        requests.enqueue(uri, x=seconds(0))
    wait_until(lambda: db.xpending("cancel", GROUP)["pending"] == 2)
    assert requests.cancel("running") is False
    assert [requests.cancel(uri) for uri in uris[1:]] == [True] * 5
    assert results.query("running", timeout=60) == first + 1
    assert results.query("r0", timeout=60) == first + 2
    for uri in uris[1:]:
        with pytest.raises(RequestCancelled):
            results.query(uri, timeout=60)
    assert requests.predict({"x": seconds(0)}, timeout=60) == first + 3


def test_slots_share_what_waits_for_a_slow_model(start, db):
    requests, results = start("shared", modelParallelism=2, maxBatchSize=32)
    uris = [f"r{number}" for number in range(8)]
    for duration in (0.05, 0.05, 0.05, 2):
        # How long the model takes is not known before it has computed something.
        for uri in uris:
            requests.enqueue(uri, x=seconds(duration))
        if duration > 1:
            wait_until(lambda: [c["pending"] for c in db.xpending("shared", GROUP)["consumers"]] == [4, 4])
        for uri in uris:
            results.query_and_delete(uri, timeout=60)


def test_a_bounded_queue_never_holds_more_and_everything_is_answered(start, db):
    limit = 12
    requests, results = start("bounded", maxQueueLength=limit, modelParallelism=2, maxBatchSize=4)
    longest, stopped = [0], threading.Event()

    def watch():
        while not stopped.is_set():
            longest[0] = max(longest[0], db.xlen("bounded"))

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
