"""The four parts of a slot in one thread, without Flink: what a debugger sees of a request."""

import os
import socket
import time

import numpy as np
import pytest

from cluster_serving.client import InferenceFailed, InputQueue, OutputQueue
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answering import Answering
from cluster_serving.connectors.slot.attempts import Attempt
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.reading import Reading, ReadingOptions
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.job.computing import Computing
from cluster_serving.job.culprits.search import CulpritSearch
from cluster_serving.job.gathering import Gathering
from cluster_serving.job.operators import ANSWERING, LOADING, READING
from cluster_serving.job.options import BatchOptions, JobOptions, ModelOptions
from cluster_serving.job.slot_model import SlotModel
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.generations import SERVING, Generation
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.tensors import encode
from tests.support.fixtures.flink_context import Context
from tests.support.fixtures.handled import NO_NEGATIVES, write


class Slot:
    """Reading, gathering, computing and answering of a slot."""

    def __init__(self, options):
        self.options = options
        shared, metrics = SharedSlot.of(options.redis.name, 0), Context()
        size = options.batch.max_batch_size
        self.reading = Reading(ReadingOptions(options.redis, size, True, stages=READING), shared, 1, metrics)
        self.model = SlotModel(options, shared, LOADING)
        self.computing = Computing(options, self.model.predictor, self.model.client, metrics, search=CulpritSearch)
        self.gathering = Gathering(options.batch, shared.counts)
        self.gathering.flow = self.reading.flow
        self.answering = Answering(options.redis, ANSWERING, shared, metrics)

    def tick(self):
        """Answer what waits; return the number of requests of each batch."""
        sizes = []
        for handed_over in self.reading.tick():
            for batch in self.gathering.take(*handed_over):
                sizes.append(len(batch.requests))
                for answers in self.computing.answer(batch):
                    self.answering.write(answers)
        return sizes

    def close(self):
        for part in (self.answering, self.model, self.reading):
            part.close()


@pytest.fixture
def opened(redis_server, db, job, tmp_path):
    create_groups(db, job)
    JobStore(db, job).put(Generation(1, SERVING))
    model = ModelOptions(str(write(tmp_path, NO_NEGATIVES)), thread_per_model=1)
    slot = Slot(JobOptions("start", model, RedisOptions(redis_server.url, job), BatchOptions(max_batch_size=4)))
    # The first tick recovers what an earlier run has left.
    assert slot.tick() == []
    yield slot
    slot.close()
    db.delete(*JobKeys(job).streams, *db.keys(f"*{job}*"))


@pytest.fixture
def queues(redis_server, job):
    with (
        InputQueue(port=redis_server.port, name=job) as requests,
        OutputQueue(port=redis_server.port, name=job) as results,
    ):
        yield requests, results


def test_requests_that_wait_share_a_batch_and_each_has_its_answer(opened, queues):
    requests, results = queues
    for number in range(3):
        requests.enqueue(f"r{number}", x=np.float32(number))
    assert opened.tick() == [3]
    assert [float(results.query(f"r{number}", timeout=10)["y"]) for number in range(3)] == [0, 1, 2]
    assert opened.reading.requests == 3
    assert opened.reading.flow.unanswered == 0


def test_a_request_that_fails_is_blamed_alone(opened, queues):
    requests, results = queues
    for name, number in (("good", 1), ("bad", -1)):
        requests.enqueue(name, x=np.float32(number))
    assert opened.tick() == [2]
    assert float(results.query("good", timeout=10)["y"]) == 1
    with pytest.raises(InferenceFailed, match="-1 is negative"):
        results.query("bad", timeout=10)
    assert opened.reading.flow.unanswered == 0


@pytest.mark.parametrize("alone", [True, False])
def test_a_late_request_alone_in_a_process_that_has_died_is_a_dead_letter(opened, db, job, alone):
    stream, [consumer] = JobKeys(job).stream("normal"), db.xinfo_consumers(JobKeys(job).stream("normal"), GROUP)
    fields = {"uri": "late", "data": encode({"x": np.float32(1)}), "serde": "arrow", "deadline": 1}
    entry_id = db.xadd(stream, fields)
    db.xreadgroup(GROUP, consumer["name"], {stream: ">"})
    db.xclaim(stream, GROUP, consumer["name"], 0, [entry_id])
    gone = Attempt(host=socket.gethostname(), process=os.getpid(), started=1, time=time.time(), alone=alone)
    db.hset(JobKeys(job).attempts, f"normal:{entry_id.decode()}", gone.to_json())
    opened.close()
    again = Slot(opened.options)
    again.tick()
    again.close()
    code = b"POISON_REQUEST" if alone else b"DEADLINE_EXCEEDED"
    assert db.hget(JobKeys(job).native_result("late"), "code") == code
    assert db.xlen(JobKeys(job).dead_letters) == alone


def test_an_expired_request_is_answered_and_not_computed(opened, queues, db, job):
    requests, results = queues
    fields = {"data": encode({"x": np.float32(1)}), "serde": "arrow"}
    db.xadd(JobKeys(job).stream("normal"), {"uri": "late", **fields, "deadline": 1})
    time.sleep(0.05)
    requests.enqueue("in time", x=np.float32(2))
    opened.tick()
    assert float(results.query("in time", timeout=10)["y"]) == 2
    assert db.hget(JobKeys(job).native_result("late"), "code") == b"DEADLINE_EXCEEDED"
    assert opened.reading.flow.unanswered == 0
