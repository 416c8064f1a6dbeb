"""Requests that slots leave to those in other processes, on a real Redis."""

import pytest

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.generation import GenerationView
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.job.hosting.left_in_redis import LeftInRedis
from cluster_serving.job.hosting.queue import Host
from cluster_serving.job.options import BatchOptions, JobOptions, ModelOptions
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.generations import SERVING, Generation
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.redis.dedicated import DedicatedConnection

NAMES = ["ours", "theirs", "missing"]


class Slot:
    """One slot of a job, and what it leaves and takes."""

    def __init__(self, db, job, index):
        options = JobOptions("", ModelOptions(""), RedisOptions("", job=job), BatchOptions(max_batch_size=2))
        self.view = GenerationView(db, options.redis)
        connection, self.consumer = DedicatedConnection(db), JobKeys(job).consumer(0, index)
        clock = RedisClock(db)
        self.left = LeftInRedis(Host(index, db, connection, clock, self.view, self.consumer, None, (), 2, ""), options)

    def take(self):
        """Take as often as something is found; return the names of models and requests."""
        self.view._next_look = 0.0
        self.view.look()
        return [(name, [entry.uri for entry in found]) for name, found in iter(lambda: self.left.take(NAMES), None)]


@pytest.fixture
def slots(db, job):
    JobStore(db, job).begin(Generation(1, SERVING))
    for name in ("ours", "theirs"):
        create_groups(db, name)
    yield [Slot(db, job, index) for index in range(2)]
    db.delete(JobKeys(job).generations, *(stream for name in NAMES for stream in JobKeys(name).streams))


def test_requests_that_a_slot_leaves_are_taken_once_and_count_as_not_tried(db, slots):
    late, free = slots
    assert free.take() == []
    for uri, priority in zip("abcd", ("normal", "high", "normal", "low"), strict=True):
        db.xadd(JobKeys("theirs").stream(priority), {"uri": uri, "data": b"x"})
    entries = StreamReader(db, "theirs", late.consumer, 60_000).read(10, None)
    late.left.put("theirs", [entry for entry in entries if entry.uri != "d"])
    taken = free.take()
    assert {name for name, _ in taken} == {"theirs"} and all(len(uris) <= 2 for _, uris in taken)
    assert sorted(uri for _, uris in taken for uri in uris) == ["a", "b", "c"]
    assert late.take() == free.take() == []
    held = {
        item["consumer"].decode(): (item["times_delivered"], stream)
        for stream in JobKeys("theirs").streams
        for item in db.xpending_range(stream, GROUP, "-", "+", 10)
    }
    assert {times for times, _ in held.values()} == {1}
    assert held[late.consumer] == (1, JobKeys("theirs").stream("low")) and free.consumer in held
