"""Announcements of results, and lost subscriptions, on a real Redis."""

import asyncio
import socket

import numpy as np
import pytest
import redis

from cluster_serving.client import AsyncOutputQueue
from cluster_serving.client.announcements import replies_in, uris_in
from cluster_serving.client.subscription import Subscription
from cluster_serving.protocol.compat import timeout as time_limit
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import encode_result


@pytest.mark.parametrize("uri", [b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"*1\r\n*0\r\n", b"*x", b":1"])
def test_a_uri_that_looks_like_an_answer_is_a_uri(uri):
    assert uri in replies_in(uri)


def test_a_message_with_newlines_may_announce_several_uris_or_one():
    assert uris_in(b"a") == [b"a"]
    assert uris_in(b"a\nb") == [b"a", b"b", b"a\nb"]


def test_subscribing_over_a_broken_connection_connects_again(redis_server, db):
    with redis.Redis(port=redis_server.port, retry_on_error=[redis.ConnectionError]) as client:
        subscription = Subscription(client, "broken")
        subscription.subscribe("first")
        # Broken on this side too: what is written to a connection that only the other side has closed may be taken.
        subscription._pubsub.connection._sock.shutdown(socket.SHUT_RDWR)
        subscription.subscribe("second")
        db.publish("second", "a")
        assert subscription.wait("second", "a", lambda announced: "found", 10) == "found"
        subscription.close()


def test_a_query_during_a_lost_subscription_renews_the_subscriptions_of_others(redis_server, db, job):
    async def lost(timeout):
        raise redis.ConnectionError("lost")

    async def main():
        async with AsyncOutputQueue(port=redis_server.port, name=job) as results:
            waiting = [asyncio.create_task(results.query("old", timeout=30))]
            while not db.pubsub_channels(JobKeys(job).result("old")):
                await asyncio.sleep(0.01)
            results._subscription._pubsub.get_message = lost
            db.publish(JobKeys(job).result("old"), "nothing")
            while results._subscription._pubsub is not None:
                await asyncio.sleep(0.01)
            waiting.append(asyncio.create_task(results.query("new", timeout=30)))
            while not db.pubsub_channels(JobKeys(job).result("new")):
                await asyncio.sleep(0.01)
            assert db.pubsub_channels(JobKeys(job).result("old"))
            for uri in ("old", "new"):
                db.hset(JobKeys(job).result(uri), mapping=encode_result(True, ["y"], [np.ones(1)]))
                db.publish(JobKeys(job).result(uri), uri)
            async with time_limit(4):
                await asyncio.gather(*waiting)

    asyncio.run(main())


def test_a_subscriber_that_is_cancelled_does_not_delay_others(redis_server, db, job):
    async def main():
        async with AsyncOutputQueue(port=redis_server.port, name=job) as results:
            waiting = [asyncio.create_task(results.query("first", timeout=30))]
            while not db.pubsub_channels(JobKeys(job).result("first")):
                await asyncio.sleep(0.01)
            pubsub = results._subscription._pubsub
            subscribe, begun = pubsub.subscribe, asyncio.Event()

            async def slow(*channels):
                begun.set()
                await asyncio.sleep(0.1)
                await subscribe(*channels)

            pubsub.subscribe = slow
            cancelled, other = (asyncio.create_task(results.query("second", timeout=30)) for _ in range(2))
            await begun.wait()
            await asyncio.sleep(0.05)
            cancelled.cancel()
            async with time_limit(3):
                while not db.pubsub_channels(JobKeys(job).result("second")):
                    await asyncio.sleep(0.01)
                db.hset(JobKeys(job).result("second"), mapping=encode_result(True, ["y"], [np.ones(1)]))
                db.publish(JobKeys(job).result("second"), "second")
                assert (await other).tolist() == [1]
            waiting[0].cancel()

    asyncio.run(main())
