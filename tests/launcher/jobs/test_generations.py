"""Generations of a job in a real Redis."""

import pytest
import redis

from cluster_serving.launcher.jobs import generations
from cluster_serving.protocol.generations import CANDIDATE, RETIRING, SERVING, Generation
from cluster_serving.protocol.keys import GROUP, JobKeys


@pytest.fixture
def client(redis_server, job):
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        yield client
        client.config_set("maxmemory", 0)
        client.delete(job, JobKeys(job).generations, JobKeys(job).slots(), JobKeys(job).slots(1), JobKeys(job).slots(2))


def test_a_full_redis_takes_a_change(client, job):
    client.xgroup_create(job, GROUP, mkstream=True)
    client.xadd(job, {"uri": "a"})
    client.xreadgroup(GROUP, "0", {job: ">"})
    client.config_set("maxmemory", 1)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        client.set("any", "thing")
    first, second = Generation(1, SERVING), Generation(2, SERVING)
    generations.begin(client, job, first)
    assert generations.next_number(client, job) == 2
    generations.put(client, job, Generation(2, CANDIDATE))
    generations.switch(client, job, second, Generation(1, RETIRING))
    now = generations.read(client, job)
    assert (now.serving, now.all[1].role) == (second, RETIRING)
    generations.hand_over(client, job, 1, 2)
    generations.end(client, job, 1)
    assert generations.read(client, job).all == {2: second}
