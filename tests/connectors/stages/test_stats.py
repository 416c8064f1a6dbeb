"""Figures of a job, which its slots write."""

import time

import pytest
import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import Answer, AnsweredBatch
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.connectors.stages import stats
from cluster_serving.connectors.stages.stats import Counting, Stats
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import DeadlineExceeded
from cluster_serving.protocol.figures import metrics
from cluster_serving.protocol.figures.exposition import Reading, questions
from cluster_serving.protocol.figures.metrics import ALIVE, KEPT_S
from cluster_serving.protocol.figures.stats import BATCH_SIZES, LATENCY_BOUNDS_MS, JobStats
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures import slots
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def writer(redis_server, db, job, monkeypatch):
    """Starts writers; each slot has one, which writes ten times a second."""
    monkeypatch.setattr(stats, "_INTERVAL", 0.1)
    clients, writers, slots = [], [], []

    def start(slot=0, **options):
        clients.append(redis.Redis(port=redis_server.port))
        options = RedisOptions("", job, **options)
        slots.append(SharedSlot.of(options.name, slot))
        writers.append(Stats(clients[-1], options, RedisClock(clients[-1]), slots[-1].counts))
        return writers[-1]

    yield start
    for made, client in zip(writers, clients, strict=True):
        made.close()
        client.close()
    db.delete(JobKeys(job).stats(), JobKeys(job).stats(1), JobKeys(job).stats(2), JobKeys(job).slot_stats)


def batch(size, failures=0, wait_ms=0, inference_ms=0):
    answers = [Answer(Entry(b"1-0", "", b""), {"code": "x"} if n < failures else {}) for n in range(size)]
    return AnsweredBatch(answers, 1000 * wait_ms, 1000 * inference_ms, 1000, 2000)


def read(db, job):
    return JobStats.read(db.hgetall(JobKeys(job).stats()))


def reading(db, job):
    return Reading.of(job, [db.execute_command(*command) for command in questions(job)])


def test_slots_add_to_the_same_totals_also_after_a_restart(writer, db, job):
    for _ in range(2):
        first, second = writer(0), writer(1)
        for slot in (first, second):
            slot.answered(batch(3, failures=1, inference_ms=7, wait_ms=2), write_us=50)
            slot.close()
    stats = read(db, job)
    assert (stats.requests, stats.failures, stats.codes, stats.batches) == (12, 4, {"x": 4}, 4)
    assert (stats.compute_us, stats.write_us) == (28_000, 200)
    assert (stats.request_wait_us, stats.request_compute_us, stats.request_us) == (24_000, 84_000, 12 * 9050)
    assert stats.failure_us == 4 * 9050
    seconds, microseconds = db.time()
    assert 0 <= seconds * 1000 + microseconds / 1000 - stats.answered_ms < 30_000


def test_each_slot_and_version_has_figures_of_its_own(writer, db, job):
    for slot, version in ((0, "1"), (1, "1"), (0, "2")):
        made = writer(slot, version=version, generation=int(version))
        made.answered(batch(4, failures=1, inference_ms=10, wait_ms=3), write_us=500)
        made.close()
    found = reading(db, job).slots
    assert set(found) == {("1", "0"), ("1", "1"), ("2", "0")}
    for values in found.values():
        assert (values[metrics.ANSWERED.name], values[f"{metrics.FAILED.name}:x"]) == (3, 1)
        parts = [values[each.sum] for each in (metrics.PREPROCESS, metrics.INFERENCE, metrics.POSTPROCESS)]
        assert parts == [1000, 7000, 2000]
        assert sum(parts) == values[metrics.COMPUTE.sum]
        # Each of the four waits for its batch.
        assert values[metrics.REQUEST.sum] == 4 * (3000 + 10_000 + 500)


def test_the_last_batch_before_a_pause_is_written(writer, db, job):
    slot = writer()
    slot.answered(batch(1), 0)
    wait_until(lambda: read(db, job).requests == 1)
    slot.answered(batch(1), 0)
    wait_until(lambda: read(db, job).requests == 2)


@pytest.mark.parametrize(
    ("inference_ms", "wait_ms", "bound"),
    [(0, 0, 0.125), (1, 0, 1), (1, 1, 2), (3, 4, 8), (60_000, 0, 65_536), (65_536, 1, "inf")],
)
def test_requests_are_counted_under_the_latency_of_their_batch(writer, db, job, inference_ms, wait_ms, bound):
    slot = writer()
    slot.answered(batch(5, 0, wait_ms, inference_ms), 0)
    slot.close()
    bounds, stats = (*LATENCY_BOUNDS_MS, "inf"), read(db, job)
    latencies = dict(zip(bounds, stats.latency_ms, strict=True))
    assert {key: count for key, count in latencies.items() if count} == {bound: 5}
    assert dict(zip(bounds, stats.wait_ms, strict=True))[wait_ms or 0.125] == 5


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
    time.sleep(0.3)  # The writer tries ten times a second.
    db.delete(JobKeys(job).stats(), JobKeys(job).stats(1))
    slot.answered(batch(3), 0)
    wait_until(lambda: read(db, job).requests == 5)


def test_what_a_slot_reads_and_refuses_is_counted_with_its_answers(writer, db, job):
    slot = slots.make(db, RedisOptions("", job))
    source = Counting(slot)
    entries = [Entry(b"1-0", "a", b""), Entry(b"2-0", "b", b"", records=b"3")]
    assert source.admit(entries) == entries
    source.readmit(entries[0])
    slot.refuse([(entries[1], DeadlineExceeded("late"))])
    source.close()
    (values,) = reading(db, job).slots.values()
    assert (values["requests_in"], values["records_in"], values["redeliveries"]) == (2, 4, 1)
    assert read(db, job).codes == {"DEADLINE_EXCEEDED": 3}
    db.delete(JobKeys(job).stats(), JobKeys(job).stats(1), JobKeys(job).slot_stats)


def test_a_shadow_has_figures_of_its_generation_only(writer, db, job):
    slot = writer(shadow=True)
    slot.answered(batch(2), 0)
    slot.close()
    assert read(db, job).requests == 0
    assert reading(db, job).slots == {}
    assert JobStats.read(db.hgetall(JobKeys(job).stats(1))).requests == 2


def test_gauges_are_those_of_slots_that_live(writer, db, job):
    slot = writer()
    SharedSlot.of(RedisOptions("", job).name, 0).counts.gauges = {metrics.MODEL_MEMORY.name: lambda: 7}
    wait_until(lambda: db.hexists(JobKeys(job).slot_stats, f"1/0/{ALIVE}"))
    assert reading(db, job).slots["1", "0"][metrics.MODEL_MEMORY.name] == 7
    slot.answered(batch(1), 0)
    slot.close()
    db.hset(JobKeys(job).slot_stats, f"1/0/{ALIVE}", int((time.time() - 60) * 1000))
    ended = reading(db, job).slots["1", "0"]
    assert metrics.MODEL_MEMORY.name not in ended and ended[metrics.ANSWERED.name] == 1


def test_figures_of_a_version_stay_for_an_hour_after_its_last_slot(writer, db, job):
    key = JobKeys(job).slot_stats
    now = int(time.time())
    for version, ended in (("old", KEPT_S + 60), ("recent", KEPT_S - 60)):
        db.hset(key, mapping={f"{version}/0/{ALIVE}": 1000 * (now - ended), f"{version}/0/records_answered": 1})
    slot = writer()
    slot.answered(batch(1), 0)
    slot.close()
    assert set(reading(db, job).slots) == {("recent", "0"), ("1", "0")}
    # Those of a job that has ended go as a whole.
    assert 0 < db.ttl(key) <= KEPT_S and db.ttl(JobKeys(job).stats()) == -1
