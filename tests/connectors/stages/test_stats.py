"""Totals of a job, which its slots write."""

import time

import pytest
import redis

from cluster_serving.connectors.answer import Answer, AnsweredBatch
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.redis import RedisClock
from cluster_serving.connectors.stages.stats import Stats
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.stats import BATCH_SIZES, LATENCY_BOUNDS_MS, JobStats
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def writer(redis_server, db, job):
    """Starts writers; each slot has one."""
    clients, writers = [], []

    def start():
        clients.append(redis.Redis(port=redis_server.port))
        writers.append(Stats(clients[-1], RedisOptions("", job), RedisClock(clients[-1])))
        return writers[-1]

    yield start
    for made, client in zip(writers, clients, strict=True):
        made.close()
        client.close()
    db.delete(JobKeys(job).stats(), JobKeys(job).stats(1))


def batch(size, failures=0, wait_ms=0, inference_ms=0):
    answers = [Answer(Entry(b"1-0", "", b""), "", {"code": "x"} if n < failures else {}) for n in range(size)]
    return AnsweredBatch(answers, 1000 * wait_ms, 1000 * inference_ms)


def read(db, job):
    return JobStats.read(db.hgetall(JobKeys(job).stats()))


def test_slots_add_to_the_same_totals_also_after_a_restart(writer, db, job):
    for _ in range(2):
        first, second = writer(), writer()
        for slot in (first, second):
            slot.answered(batch(3, failures=1, inference_ms=7, wait_ms=2), write_us=50)
            slot.close()
    stats = read(db, job)
    assert (stats.requests, stats.failures, stats.batches) == (12, 4, 4)
    assert (stats.wait_us, stats.inference_us, stats.write_us) == (8000, 28_000, 200)
    assert (stats.request_wait_us, stats.request_inference_us, stats.request_write_us) == (24_000, 84_000, 600)
    assert stats.failure_us == 4 * 9050
    seconds, microseconds = db.time()
    assert 0 <= seconds * 1000 + microseconds / 1000 - stats.answered_ms < 30_000


def test_the_last_batch_before_a_pause_is_written(writer, db, job):
    slot = writer()
    slot.answered(batch(1), 0)
    wait_until(lambda: read(db, job).requests == 1)
    slot.answered(batch(1), 0)
    wait_until(lambda: read(db, job).requests == 2)


@pytest.mark.parametrize(
    ("inference_ms", "wait_ms", "bound"),
    [(0, 0, 1), (1, 0, 1), (1, 1, 2), (3, 3, 7), (60_000, 0, 60_000), (60_000, 1, "inf")],
)
def test_requests_are_counted_under_the_latency_of_their_batch(writer, db, job, inference_ms, wait_ms, bound):
    slot = writer()
    slot.answered(batch(5, 0, wait_ms, inference_ms), 0)
    slot.close()
    bounds, stats = (*LATENCY_BOUNDS_MS, "inf"), read(db, job)
    latencies = dict(zip(bounds, stats.latency_ms, strict=True))
    assert {key: count for key, count in latencies.items() if count} == {bound: 5}
    assert dict(zip(bounds, stats.wait_ms, strict=True))[wait_ms or 1] == 5


def test_batches_are_counted_under_their_size(writer, db, job):
    slot = writer()
    for size in (1, 2, 3, 4, 5, 2048, 2049):
        slot.answered(batch(size), 0)
    slot.close()
    sizes = dict(zip((*BATCH_SIZES, "inf"), read(db, job).batch_sizes, strict=True))
    assert {bound: count for bound, count in sizes.items() if count} == {1: 1, 2: 1, 4: 2, 8: 1, 2048: 1, "inf": 1}


def test_totals_that_redis_does_not_take_are_written_later(writer, db, job):
    slot = writer()
    db.set(JobKeys(job).stats(), "no hash")
    slot.answered(batch(2), 0)
    time.sleep(1.5)  # The writer tries once a second.
    db.delete(JobKeys(job).stats(), JobKeys(job).stats(1))
    slot.answered(batch(3), 0)
    wait_until(lambda: read(db, job).requests == 5)
