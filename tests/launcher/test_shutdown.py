"""What `cluster-serving-shutdown` asks, and what it leaves."""

import os
import pty

import pytest
import redis

from cluster_serving.client import InputQueue
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.services import redis_server
from cluster_serving.launcher.services.process import is_listening
from cluster_serving.protocol.keys import JobKeys

SHUTDOWN = "cluster-serving-shutdown"
LOST = "1 waiting request, 3 unread results, 1 dead letter; running jobs: none"


@pytest.fixture
def config(own_cluster, monkeypatch):
    """The configuration of a Redis with a password, which runs and holds what a shutdown would lose."""
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(own_cluster.folder / "state"))
    url = f'redis://:se"cret@localhost:{own_cluster.redis_port}/3'
    config = Config.model_validate({"modelPath": "m", "redisUrl": url})
    redis_server.ensure(config)
    with InputQueue(url=url, name="waiting") as requests, redis.Redis.from_url(url) as client:
        requests.enqueue("r", x=1.0)
        for uri in ("a", "b"):
            client.hset(JobKeys("other").result(uri), "value", "")
        client.xadd(JobKeys("other").pieces("d"), {"value": ""})
        client.xadd(JobKeys("other").dead_letters, {"uri": "c"})
        client.xadd(JobKeys("other").events, {"what": "started"})
        client.xadd(JobKeys("other").history, {"figures": "{}"})
    return config


def answered(cluster, text):
    """The command on a terminal, where a person types a text."""
    person, terminal = pty.openpty()
    os.write(person, text.encode())
    try:
        return cluster.run(SHUTDOWN, stdin=terminal)
    finally:
        os.close(person)
        os.close(terminal)


def test_requests_and_results_are_lost_only_if_somebody_says_so(own_cluster, config):
    address = config.redis_address
    refused = own_cluster.run(SHUTDOWN)
    assert refused.returncode == 1
    assert f"nothing was stopped, because this would be lost: Redis on port {address.port}: {LOST}" in refused.stderr
    assert "--yes" in refused.stderr and "--keep-data" in refused.stderr

    declined = answered(own_cluster, "n\n")
    assert declined.returncode == 1
    assert f"{LOST}. Stop all, and remove it? [y/N]" in declined.stdout
    assert is_listening(address)

    assert "kept its data" in own_cluster.run(SHUTDOWN, "--keep-data").stdout
    assert not is_listening(address)
    assert "bytes of data, while it does not run" in own_cluster.run(SHUTDOWN).stderr
    redis_server.ensure(config)
    with redis_server.connect(config) as client:
        assert client.xlen("waiting") == 1

    agreed = answered(own_cluster, "y\n")
    assert agreed.returncode == 0
    assert "removed its data" in agreed.stdout
    assert [path.name for path in redis_server.folder(address).iterdir()] == ["redis.log"]


def test_nothing_to_lose_is_no_question(own_cluster, config):
    with redis_server.connect(config) as client:
        client.flushall()
    stopped = own_cluster.run(SHUTDOWN)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert not is_listening(config.redis_address)
