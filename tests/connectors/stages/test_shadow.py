"""Copies of requests for a shadow, and the comparison of its answers, on a real Redis."""

import numpy as np
import pytest
import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import Answer, AnsweredBatch, write_answers
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.connectors.stages import shadow
from cluster_serving.connectors.stages.shadow import Comparator, Mirror, Recorder
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol import tensors
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.figures.comparison import Comparison
from cluster_serving.protocol.figures.stats import LATENCY_BOUNDS_MS
from cluster_serving.protocol.generations import SHADOW, Generation, Generations
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import encode_error, encode_result
from tests.support.fixtures import slots
from tests.support.fixtures.waiting import wait_until

NUMBER = 2
DATA = tensors.encode({"x": np.zeros(3, "f4")})


def of_shadow(job, **options):
    return RedisOptions("", job, generation=NUMBER, shadow=True, **options)


@pytest.fixture
def queue(redis_server, db, job, monkeypatch):
    """The queue of a shadow of the job."""
    monkeypatch.setattr(shadow, "_COPY_INTERVAL_S", 0.0)
    monkeypatch.setattr(shadow, "_KEEP_INTERVAL_S", 0.0)
    name = JobKeys(job).shadow(NUMBER).job
    create_groups(db, name)
    yield name
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        JobStore(client, job).end(NUMBER)
    assert not [key for key in db.keys(f"*{job}*") if b":awaited:" not in key and not key.endswith(b":events")]
    db.delete(JobKeys(job).awaited(NUMBER, ""), *db.keys(f"*{job}*"))


@pytest.fixture
def mirror(db, job, queue):
    mirror = Mirror(slots.make(db, RedisOptions("", job)))
    yield mirror
    mirror.close()


def copy(mirror, requests, share=100):
    """Let a slot that serves read requests beside a shadow with that share."""
    mirror.slot.generation.now = Generations({NUMBER: Generation(NUMBER, SHADOW, share=share)})
    return mirror.admit(requests)


def entries(count, first=1):
    return [
        Entry(b"%d-0" % n, f"request-{n}", DATA, b"arrow", "channel", b"1", "high") for n in range(first, first + count)
    ]


def compared(db, job):
    fields = db.hgetall(JobKeys(job).compared(NUMBER))
    return Comparison.read({name.decode(): value.decode() for name, value in fields.items()})


def test_a_shadow_gets_copies_of_its_share_and_their_answers_reach_nobody(db, job, queue, mirror):
    marked = copy(mirror, entries(100), share=25)
    chosen = [entry for entry in marked if entry.shadow]
    assert abs(len(chosen) - 25) <= 3
    wait_until(lambda: db.xlen(queue) == len(chosen))
    reader = StreamReader(db, queue, JobKeys(queue).consumer(NUMBER, 0), 60_000)
    copies = reader.read(100, None)
    assert [copy.uri for copy in copies] == [f"high:{entry.id.decode()}" for entry in chosen]
    # The client's deadline and channel stay with its own request.
    assert {(copy.data, copy.serde, copy.deadline, copy.reply_to) for copy in copies} == {(DATA, b"arrow", b"0", "")}
    options = of_shadow(job, payload_folder="/some").queue
    assert (options.job, options.payload_folder) == (queue, "")
    before = set(db.keys(f"*{job}*"))
    answers = [Answer(copy, {"value": b"1", "serde": b"arrow"}) for copy in copies]
    assert write_answers(db, options.job, options.result_ttl_s, answers) == len(chosen)
    assert set(db.keys(f"*{job}*")) - before == {f"{queue}:answered".encode()}
    assert not db.xlen(queue)


def test_a_slow_shadow_fills_no_redis(db, job, queue, mirror, monkeypatch):
    monkeypatch.setattr(shadow, "MOST_COPIES", 10)
    copy(mirror, entries(12))
    wait_until(lambda: compared(db, job).skipped == 2)
    assert db.xlen(queue) == 10
    monkeypatch.setattr(shadow, "MOST_COPIES", 100)
    monkeypatch.setattr(shadow, "MOST_BYTES", 12 * len(DATA))
    copy(mirror, entries(5, first=20))
    wait_until(lambda: compared(db, job).skipped == 5)
    assert db.xlen(queue) == 12


def test_a_full_redis_and_a_shadow_that_has_ended_get_no_copies(db, job, queue, mirror):
    db.config_set("maxmemory", 1)
    try:
        copy(mirror, entries(3))
        wait_until(lambda: mirror._skipped == 3)
    finally:
        db.config_set("maxmemory", 0)
    assert not db.xlen(queue)
    copy(mirror, entries(1))
    wait_until(lambda: compared(db, job).skipped == 3)
    db.delete(queue, JobKeys(job).compared(NUMBER))
    copy(mirror, entries(3))
    mirror.close()
    assert not db.exists(queue, JobKeys(job).compared(NUMBER))


def result(*values):
    return encode_result(True, ["y"], [np.array(values, "f4")])


def original(*values):
    return encode_result(False, ["y"], [np.array(values, "f4")])


def batch(answers, latency_us):
    return AnsweredBatch([Answer(entry, fields) for entry, fields in answers], 0, latency_us)


def test_the_answers_of_a_shadow_are_compared_with_those_of_the_same_requests(redis_server, db, job, queue, mirror):
    failure = encode_error(InvalidInput("no"))
    pairs = [
        (result(1, 2), result(1, 2.0001)),
        (original(0.5), original(0.50001)),
        (result(1, 2), result(1, 2.5)),
        (result(1), failure),
        (failure, result(1)),
        (failure, failure),
        (result(1), result(1)),
    ]
    recorder, comparator = Recorder(db, RedisOptions("", job)), Comparator(db, of_shadow(job))
    served = [*entries(len(pairs) - 1), *entries(1, 9)]
    served = [entry._replace(shadow=b"2") for entry in served]
    # The model may answer before the copies have left.
    recorder.answered(batch(zip(served, (before for before, _ in pairs), strict=True), 2000), 500)
    marked = copy(mirror, entries(len(pairs) - 1))
    assert marked == served[:-1]
    wait_until(lambda: db.xlen(queue) == len(pairs) - 1)
    copies = StreamReader(db, queue, JobKeys(queue).consumer(NUMBER, 0), 60_000).read(100, None)
    # The last one was not copied.
    copies.append(Entry(b"9-0", "high:9-0", DATA))
    comparator.answered(batch(zip(copies, (after for _, after in pairs), strict=True), 20_000), 0)
    wait_until(lambda: compared(db, job).compared == len(marked))
    recorder.close()
    comparator.close()
    found = compared(db, job)
    assert (found.differing, found.serving_failures, found.shadow_failures, found.skipped) == (3, 1, 1, 1)
    assert found.largest == 0.5
    at = LATENCY_BOUNDS_MS.index
    assert (found.serving_ms[at(4)], found.shadow_ms[at(32)]) == (6, 6)
    example = found.examples[0]
    assert example["uri"] == "request-3"
    assert example["difference"] == "output y: 1 of 2 numbers differ, by up to 0.5"
    assert (example["serving"], example["shadow"]) == ("y [1. 2.]", "y [1. 2.5]")
    assert "INVALID_INPUT" in found.examples[1]["difference"]
    assert not [key for key in db.keys(f"*{job}*") if b":awaited:" in key]
