"""What the controller of a job reads in Redis."""

import redis

from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.rollout.controller import is_started
from cluster_serving.protocol.slots import SlotReport


def test_a_job_that_redis_knows_by_its_slots_alone_counts_as_started(redis_server, job):
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        store = JobStore(client, job)
        assert not is_started(store)
        store.note("running")
        assert is_started(store)
        # Redis has lost all, and a slot has written its report again.
        client.delete(store.keys.record)
        client.hset(store.keys.slots(), "0", SlotReport("", "ready").to_json())
        assert is_started(store)
        store.note("stopped")
        assert not is_started(store)
        client.delete(store.keys.record, store.keys.slots(), store.keys.events)
