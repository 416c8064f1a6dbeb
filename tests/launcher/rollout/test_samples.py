"""Samples of the load of a job, by which its number of slots is decided."""

import pytest
import redis

from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.rollout.samples import sample
from cluster_serving.protocol.figures import metrics
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.slots import SlotReport

FIELDS = {
    metrics.ANSWERED.name: 10,
    metrics.COMPUTE.sum: 1000,
    metrics.REQUESTS_IN.name: 8,
    metrics.RECORDS_IN.name: 9,
    metrics.QUEUE_WAIT.fields[2]: 3,
}


@pytest.mark.parametrize("names", [[], ["a", "b"]])
def test_the_queues_and_answers_of_all_models_count(redis_server, job, names):
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        store = JobStore(client, job)
        queues = [JobKeys(job), *(JobKeys(f"{job}-{name}") for name in names)]
        if names:
            report = SlotReport("", "ready").to_json()
            client.hset(store.keys.models, mapping={f"{job}-{name}": report for name in names})
        for number, keys in enumerate(queues, 1):
            # One was read and not answered, and as many wait.
            client.xgroup_create(keys.streams[1], GROUP, id="0", mkstream=True)
            client.xadd(keys.streams[1], {"uri": "read"})
            client.xreadgroup(GROUP, "slot", {keys.streams[1]: ">"})
            for _ in range(number):
                client.xadd(keys.streams[1], {"uri": "waits"})
            client.hset(keys.stats(), mapping={name: number * value for name, value in FIELDS.items()})
        taken = sample(store, 2)
        total = sum(range(1, len(queues) + 1))
        assert (taken.slots, taken.queued) == (2, total + len(queues))
        assert (taken.answered, taken.busy_us) == (10 * total, 1000 * total)
        assert taken.waits[2] == sum(taken.waits) == 3 * total
        assert (taken.requests_in, taken.records_in) == (8 * total, 9 * total)
        client.delete(store.keys.models, *(key for keys in queues for key in (*keys.streams, keys.stats())))
