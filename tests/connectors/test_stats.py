"""The totals that slots keep in Redis, against a real one."""

import time

import pytest
import redis

from cluster_serving.connectors.answer import Answer, AnsweredBatch
from cluster_serving.connectors.redis import RedisClock
from cluster_serving.connectors.reporting import StatsWriter
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.keys import stats_key
from cluster_serving.protocol.stats import BATCH_SIZES, LATENCY_BOUNDS_MS, JobStats
from tests.support.waiting import wait_until


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


def batch(size, failures=0, wait_ms=0, inference_ms=0):
    answers = [Answer(Entry(b"1-0", "", b""), "", {"code": "x"} if n < failures else {}) for n in range(size)]
    return AnsweredBatch(answers, 1000 * wait_ms, 1000 * inference_ms)


def read(db, job):
    return JobStats.read(db.hgetall(stats_key(job)))


def test_slots_add_to_the_same_totals_also_after_a_restart(writer, db, job):
    for _ in range(2):
        first, second = writer(), writer()
        for slot in (first, second):
            slot.add(batch(3, failures=1, inference_ms=7, wait_ms=2), write_us=50)
            slot.close()
    stats = read(db, job)
    assert (stats.requests, stats.failures, stats.batches) == (12, 4, 4)
    assert (stats.wait_us, stats.inference_us, stats.write_us) == (8000, 28_000, 200)


def test_the_last_batch_before_a_rest_is_written(writer, db, job):
    slot = writer()
    slot.add(batch(1), 0)
    wait_until(lambda: read(db, job).requests == 1)
    slot.add(batch(1), 0)
    wait_until(lambda: read(db, job).requests == 2)


@pytest.mark.parametrize(
    ("inference_ms", "wait_ms", "bound"),
    [(0, 0, 1), (1, 0, 1), (1, 1, 2), (3, 3, 7), (60_000, 0, 60_000), (60_000, 1, "inf")],
)
def test_requests_are_counted_under_the_latency_of_their_batch(writer, db, job, inference_ms, wait_ms, bound):
    slot = writer()
    slot.add(batch(5, 0, wait_ms, inference_ms), 0)
    slot.close()
    latencies = dict(zip((*LATENCY_BOUNDS_MS, "inf"), read(db, job).latency_ms, strict=True))
    assert {key: count for key, count in latencies.items() if count} == {bound: 5}


def test_batches_are_counted_under_their_size(writer, db, job):
    slot = writer()
    for size in (1, 2, 3, 4, 5, 2048, 2049):
        slot.add(batch(size), 0)
    slot.close()
    sizes = dict(zip((*BATCH_SIZES, "inf"), read(db, job).batch_sizes, strict=True))
    assert {bound: count for bound, count in sizes.items() if count} == {1: 1, 2: 1, 4: 2, 8: 1, 2048: 1, "inf": 1}


def test_an_idle_slot_gives_a_sign_of_life_by_the_clock_of_redis(writer, db, job):
    assert read(db, job).seen_ms is None
    writer()
    wait_until(lambda: read(db, job).seen_ms is not None)
    seconds, microseconds = db.time()
    assert abs(seconds * 1000 + microseconds / 1000 - read(db, job).seen_ms) < 30_000


def test_what_redis_does_not_take_is_written_later(writer, db, job):
    slot = writer()
    db.set(stats_key(job), "no hash")
    slot.add(batch(2), 0)
    time.sleep(1.5)  # Let it try.
    db.delete(stats_key(job))
    slot.add(batch(3), 0)
    wait_until(lambda: read(db, job).requests == 5)
