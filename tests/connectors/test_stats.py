"""The totals that slots keep in Redis, against a real one."""

import time

import pytest
import redis

from cluster_serving.client.protocol import stats_key
from cluster_serving.client.stats import LATENCY_BOUNDS_MS, JobStats
from cluster_serving.connectors.redis_clock import RedisClock
from cluster_serving.connectors.stats import StatsWriter
from tests.waiting import wait_until


@pytest.fixture
def writer(redis_server, db, job):
    """Starts writers, as each slot has one."""
    clients, writers = [], []

    def start():
        clients.append(redis.Redis(port=redis_server.port))
        writers.append(StatsWriter(clients[-1], job, RedisClock(clients[-1])))
        return writers[-1]

    yield start
    for made, client in zip(writers, clients, strict=True):
        made.close()
        client.close()
    db.delete(stats_key(job))


def read(db, job):
    return JobStats.read(db.hgetall(stats_key(job)))


def test_slots_add_to_the_same_totals_also_after_a_restart(writer, db, job):
    for _ in range(2):
        first, second = writer(), writer()
        for slot in (first, second):
            slot.add(size=3, failures=1, inference_ms=7, wait_ms=2)
            slot.close()
    stats = read(db, job)
    assert (stats.requests, stats.failures, stats.batches) == (12, 4, 4)
    assert (stats.inference_ms, stats.wait_ms) == (28, 8)


def test_the_last_batch_before_a_rest_is_written(writer, db, job):
    slot = writer()
    slot.add(1, 0, 1, 1)
    wait_until(lambda: read(db, job).requests == 1)
    slot.add(1, 0, 1, 1)
    wait_until(lambda: read(db, job).requests == 2)


@pytest.mark.parametrize(
    ("inference_ms", "wait_ms", "bound"),
    [(0, 0, 1), (1, 0, 1), (1, 1, 2), (3, 3, 7), (60_000, 0, 60_000), (60_000, 1, "inf")],
)
def test_requests_are_counted_under_the_latency_of_their_batch(writer, db, job, inference_ms, wait_ms, bound):
    slot = writer()
    slot.add(5, 0, inference_ms, wait_ms)
    slot.close()
    latencies = dict(zip((*LATENCY_BOUNDS_MS, "inf"), read(db, job).latency_ms, strict=True))
    assert {key: count for key, count in latencies.items() if count} == {bound: 5}


def test_an_idle_slot_gives_a_sign_of_life_by_the_clock_of_redis(writer, db, job):
    assert read(db, job).seen_ms is None
    writer()
    wait_until(lambda: read(db, job).seen_ms is not None)
    seconds, microseconds = db.time()
    assert abs(seconds * 1000 + microseconds / 1000 - read(db, job).seen_ms) < 30_000


def test_what_redis_does_not_take_is_written_later(writer, db, job):
    slot = writer()
    db.set(stats_key(job), "no hash")
    slot.add(2, 0, 1, 1)
    time.sleep(1.5)  # Let it try.
    db.delete(stats_key(job))
    slot.add(3, 0, 1, 1)
    wait_until(lambda: read(db, job).requests == 5)
