"""The queue of one model of a slot, on a real Redis."""

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.generation import GenerationView
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.job.hosting.queue import Host, ModelQueue
from cluster_serving.job.options import BatchOptions, JobOptions, ModelOptions
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.redis.dedicated import DedicatedConnection
from tests.support.fixtures.flink_context import Context


def test_new_requests_are_given_away_while_interrupted_ones_wait(db, job):
    options = JobOptions("", ModelOptions(""), RedisOptions("", job=job), BatchOptions(max_batch_size=2))
    consumer, stream = JobKeys("shop").consumer(0, 0), JobKeys(job).stream("normal")
    view, metrics = GenerationView(db, options.redis), Context().get_metrics_group()
    queue = ModelQueue(
        Host(0, db, DedicatedConnection(db), RedisClock(db), view, consumer, metrics, (), 2, ""), options, Counts(0)
    )
    create_groups(db, job)
    db.xadd(stream, {"uri": "interrupted", "data": b"x"})
    db.xreadgroup(GROUP, consumer, {stream: ">"})
    queue.start_over()
    queue.give([(stream.encode(), [(b"9-9", [b"uri", b"new", b"data", b"x"])])], 2)
    assert [entry.uri for entry in queue.leave()] == ["new"]
    assert queue.recovering and [entry.uri for entry in queue.read()] == ["interrupted"]
    assert queue.leave() == []
