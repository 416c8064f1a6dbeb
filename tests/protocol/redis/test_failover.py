"""URLs of Sentinels and clusters, and what happens to requests when the master changes: on real ones."""

import asyncio

import numpy as np
import pytest
from redis.crc import key_slot

from cluster_serving.client import InputQueue, OutputQueue
from cluster_serving.client.aio import AsyncInputQueue
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.connectors.slot.redis import connect
from cluster_serving.protocol.errors import InvalidInput, RedisUnavailable, ResultTimeout
from cluster_serving.protocol.redis.failover import parse
from tests.support.fixtures.echo import Consumer
from tests.support.fixtures.redis_topologies import Cluster, Sentinels, eventually, servers


@pytest.mark.parametrize(
    ("url", "nodes", "service", "plain"),
    [
        (
            "redis+sentinel://me:p%40ss@a:1,b/main/3",
            (("a", 1), ("b", 26379)),
            "main",
            "redis://me:p%40ss@a:1/3",
        ),
        (
            "rediss+sentinel://a/main?ssl_ca_certs=ca.pem",
            (("a", 26379),),
            "main",
            "rediss://a:26379/0?ssl_ca_certs=ca.pem",
        ),
        ("redis+cluster://:secret@[::1]:7000,b:7001", (("::1", 7000), ("b", 7001)), "", "redis://:secret@[::1]:7000/0"),
        ("rediss+cluster://a/0", (("a", 6379),), "", "rediss://a:6379/0"),
    ],
)
def test_a_url_says_who_knows_the_master(url, nodes, service, plain):
    found = parse(url)
    assert (found.nodes, found.service, found.plain) == (nodes, service, plain)
    assert "secret" not in str(found)


def test_sentinels_may_have_a_login_of_their_own():
    found = parse("redis+sentinel://:secret@a/main?sentinel_username=u&sentinel_password=p")
    assert found.sentinel_login == {"username": "u", "password": "p"}
    assert found.plain == "redis://:secret@a:26379/0"


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://a:1",
        "redis+sentinel://a:x/main",
        "redis+sentinel:///main",
        "redis+sentinel://a/main/b",
        "redis+cluster://a:1/1",
        "redis+cluster://a:1,",
        "redis+other://a:1",
    ],
)
def test_a_wrong_url_is_refused(url):
    with pytest.raises(ValueError):
        parse(url)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with servers() as running:
        yield Cluster(tmp_path_factory.mktemp("cluster"), running)


@pytest.fixture
def sentinels(tmp_path):
    with servers() as running:
        yield Sentinels(tmp_path, running)


def test_requests_go_on_when_sentinels_replace_the_master(sentinels):
    with connect(RedisOptions(sentinels.url, "serving")) as client:
        create_group(client, "serving")
    with (
        Consumer(sentinels.url, "serving"),
        InputQueue(name="serving", url=sentinels.url) as requests,
        OutputQueue(name="serving", url=sentinels.url) as results,
    ):
        assert requests.predict({"x": np.ones(3)}, timeout=30).tolist() == [1, 1, 1]
        requests.enqueue("before", x=np.zeros(2))
        assert results.query("before", timeout=30).tolist() == [0, 0]
        assert requests.db.wait(1, 10_000) == 1
        sentinels.master.kill()

        def ask():
            return requests.predict({"x": np.arange(2)}, timeout=5)

        assert eventually(ask, (RedisUnavailable, ResultTimeout)).tolist() == [0, 1]
        assert sentinels.replica.client.role()[0] == "master"
        # The replica had the result that was there before.
        assert results.query("before").tolist() == [0, 0]

        async def ask_async():
            async with AsyncInputQueue(name="serving", url=sentinels.url) as queue:
                return await queue.predict({"x": np.arange(3)}, timeout=30)

        assert asyncio.run(ask_async()).tolist() == [0, 1, 2]


def test_a_service_that_no_sentinel_knows_is_named(sentinels):
    url = sentinels.url.replace("mymaster", "other")
    with InputQueue(name="serving", url=url) as requests, pytest.raises(RedisUnavailable, match="'other'"):
        requests.enqueue("a", x=np.ones(1))


def test_a_cluster_serves_a_job_with_braces_and_a_slot_may_move(cluster):
    job = "{serving}"
    slot = key_slot(job.encode())
    with connect(RedisOptions(cluster.url, job)) as client:
        create_group(client, job)
    with InputQueue(name=job, url=cluster.url) as requests:
        with Consumer(cluster.url, job):
            assert requests.predict({"x": np.ones(3)}, timeout=30).tolist() == [1, 1, 1]
            with OutputQueue(name=job, url=cluster.url) as results:
                requests.enqueue("a{b}", x=np.zeros(2))
                assert results.query_and_delete("a{b}", timeout=30).tolist() == [0, 0]

            async def ask_async():
                async with AsyncInputQueue(name=job, url=cluster.url) as queue:
                    return await queue.predict({"x": np.arange(3)}, timeout=30)

            assert asyncio.run(ask_async()).tolist() == [0, 1, 2]
        owner = cluster.owner(slot)
        other = next(node for node in cluster.nodes if node is not owner)
        owner.client.flushall()
        cluster.move(slot, other)

        def ask():
            return requests.predict({"x": np.arange(2)}, timeout=5)

        with Consumer(cluster.url, job):
            assert eventually(ask, (RedisUnavailable, ResultTimeout)).tolist() == [0, 1]
        assert other.client.exists(job)


def test_a_job_without_braces_is_refused_in_a_cluster():
    with pytest.raises(InvalidInput, match=r"jobName is 'serving'; .* such as '\{serving\}'"):
        InputQueue(name="serving", url="redis+cluster://localhost:7000")
