"""Stages of a contributor: what one method around reads and answers can do, on a real Redis."""

import pytest

from cluster_serving.connectors import source
from cluster_serving.connectors.flink.slot_keys import SlotKeys
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.sink import RedisHashSink
from cluster_serving.connectors.slot.answer import Answer, AnsweredBatch
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.reading import ReadingOptions
from cluster_serving.connectors.slot.stage import AnswerStage, Stage
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.job.operators import READING
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.generations import SERVING, Generation
from cluster_serving.protocol.keys import GROUP, JobKeys
from tests.support.fixtures.flink_context import Context
from tests.support.fixtures.waiting import wait_until


class Stamp(AnswerStage):
    """Stamps a field on each answer."""

    def answering(self, batch):
        answers = [answer._replace(fields={**answer.fields, "stamp": "slot 7"}) for answer in batch.answers]
        return batch._replace(answers=answers)


class Upper(Stage):
    """Changes the inputs of each request, also after a crash."""

    def admit(self, entries):
        return [self.readmit(entry) for entry in entries]

    def readmit(self, entry):
        return entry._replace(data=entry.data.upper())


@pytest.fixture
def options(redis_server, db, job):
    create_groups(db, job)
    JobStore(db, job).put(Generation(1, SERVING))
    yield RedisOptions(redis_server.url, job, generation=1)
    db.delete(*JobKeys(job).streams, *db.keys(f"*{job}*"))


def test_a_stage_stamps_each_answer(db, job, options):
    db.xadd(JobKeys(job).stream("normal"), {"uri": "a", "data": b"x"})
    reader = StreamReader(db, job, JobKeys(job).consumer(1, 0), 60_000)
    (entry,) = reader.read(10, None)
    sink = RedisHashSink(options, [Stamp])
    sink.open(Context())
    sink.flat_map(AnsweredBatch([Answer(entry, {"value": "1"})], 0, 0))
    sink.close()
    reader.close()
    (key,) = db.keys(f"*{job}*:a")
    assert db.hgetall(key) == {b"value": b"1", b"stamp": b"slot 7", b"version": b"1"}


def test_a_stage_sees_new_requests_and_those_that_a_crash_has_interrupted(db, job, options):
    db.xadd(JobKeys(job).stream("normal"), {"uri": "interrupted", "data": b"x"})
    crashed = StreamReader(db, job, JobKeys(job).consumer(1, 0), 60_000)
    assert len(crashed.read(10, None)) == 1
    crashed.close()
    reading = ReadingOptions(options, 4, greedy=True, stages=(*READING, Upper))
    slot = source.RedisStreamsSource(reading, SlotKeys((0,), 1))
    slot.open(Context())
    found = {}

    def reads(uri):
        found.update((entry.uri, entry.data) for entry in slot._reading._read(None))
        return uri in found

    try:
        wait_until(lambda: reads("interrupted"))
        db.xack(JobKeys(job).stream("normal"), GROUP, *[item["message_id"] for item in pending(db, job)])
        db.xadd(JobKeys(job).stream("normal"), {"uri": "new", "data": b"y"})
        wait_until(lambda: reads("new"))
    finally:
        slot.close()
    assert found == {"interrupted": b"X", "new": b"Y"}


def pending(db, job):
    return db.xpending_range(JobKeys(job).stream("normal"), GROUP, "-", "+", 10)
