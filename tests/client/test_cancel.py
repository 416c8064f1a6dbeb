"""Withdrawing requests that wait, on a real Redis."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, InputQueue, OutputQueue, RequestCancelled
from cluster_serving.client.positions import Position, RecentEntries
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.connectors.slot.limits import publish_limits
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.protocol.keys import GROUP, JobKeys, image_result_key
from cluster_serving.protocol.original import image_stream
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def requests(redis_server, job):
    with InputQueue(port=redis_server.port, name=job) as queue:
        yield queue


@pytest.fixture
def other_client(redis_server, job):
    """A queue that has queued nothing."""
    with InputQueue(port=redis_server.port, name=job) as queue:
        yield queue


def put(queue, *uris):
    for uri in uris:
        queue.enqueue(uri, x=np.zeros(1))


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("who", ["requests", "other_client"])
def test_a_waiting_request_is_withdrawn_and_its_client_told(redis_server, db, job, requests, other_client, who, group):
    if group:
        create_group(db, job)
    put(requests, "a", "b", "c")
    canceller = {"requests": requests, "other_client": other_client}[who]
    with OutputQueue(port=redis_server.port, name=job) as results, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(results.query, "b", timeout=30)
        wait_until(lambda: db.pubsub_numsub(JobKeys(job).result("b"))[0][1] == 1)
        assert canceller.cancel("b") is True
        with pytest.raises(RequestCancelled, match="'b' was cancelled before it was computed"):
            waiting.result(4)
    assert [fields[b"uri"] for _, fields in db.xrange(job)] == [b"a", b"c"]
    assert canceller.cancel("b") is False


@pytest.mark.parametrize("who", ["requests", "other_client"])
def test_what_is_being_computed_or_is_unknown_is_left_alone(db, job, requests, other_client, who):
    create_group(db, job)
    put(requests, "running", "waiting")
    StreamReader(db, job, "c", 60_000).read(1, None)
    canceller = {"requests": requests, "other_client": other_client}[who]
    assert canceller.cancel("running") is False
    assert canceller.cancel("never was") is False
    assert db.xlen(job) == 2
    assert db.xpending(job, GROUP)["pending"] == 1
    assert not db.exists(JobKeys(job).native_result("running"))
    assert canceller.cancel("waiting") is True


def test_the_answer_is_kept_as_long_as_the_job_says(db, job, requests):
    publish_limits(db, RedisOptions("", job, result_ttl_s=7200))
    put(requests, "a")
    db.hset(JobKeys(job).native_result("a"), "value", "of an earlier request")
    assert requests.cancel("a")
    assert 7100 < db.ttl(JobKeys(job).native_result("a")) <= 7200
    assert db.hgetall(JobKeys(job).native_result("a")).keys() == {b"value", b"error", b"code"}


def test_the_channel_of_the_request_hears_of_it(db, job, requests):
    db.xadd(job, {"uri": "foreign", "data": "x", "reply_to": "my-channel"})
    with db.pubsub() as listener:
        listener.subscribe("my-channel")
        assert listener.get_message(timeout=5)["type"] == "subscribe"
        assert requests.cancel("foreign")
        assert listener.get_message(timeout=5)["data"] == b"foreign"


@pytest.mark.parametrize("fields", [{"image": "x"}, {"data": "x"}, {"image": "x", "data": "x"}])
def test_the_clients_of_0_7_find_the_answer_where_they_look(redis_server, db, fields):
    old, later = image_result_key("a"), JobKeys(image_stream.STREAM).result("a")
    key, other = (old, later) if "data" not in fields else (later, old)
    with InputQueue(port=redis_server.port, name=image_stream.STREAM) as queue, db.pubsub() as listener:
        listener.subscribe(later)
        assert listener.get_message(timeout=5)["type"] == "subscribe"
        db.xadd(image_stream.STREAM, {"uri": "a"} | fields)
        try:
            assert queue.cancel("a")
            assert db.hget(key, "code") == b"REQUEST_CANCELLED"
            assert 0 < db.ttl(key) <= 3600
            assert not db.exists(other)
            assert listener.get_message(timeout=5)["data"] == b"a"
        finally:
            db.delete(image_stream.STREAM, old, later)


def test_a_long_stream_is_searched_in_pages(db, job, other_client):
    with db.pipeline() as pipeline:
        for number in range(5000):
            pipeline.xadd(job, {"uri": f"r{number}", "data": b"x" * 100})
        for _ in range(3):
            pipeline.xadd(job, {"uri": "large", "data": b"x" * (1 << 20)})
        pipeline.execute()
    db.config_resetstat()
    assert other_client.cancel("r0") is True
    calls = sum(db.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))
    assert 6 <= calls < 20
    assert other_client.cancel("large") is True
    assert db.xlen(job) == 4999


def test_a_restarted_redis_is_sent_the_script_again(redis_server, db, job, requests):
    put(requests, "a", "b")
    assert requests.cancel("a")
    redis_server.stop()
    redis_server.start()
    assert requests.cancel("b")


def test_a_full_redis_can_still_be_emptied(db, job, requests):
    put(requests, "a")
    db.config_set("maxmemory", 1)
    try:
        assert requests.cancel("a")
    finally:
        db.config_set("maxmemory", 0)
    assert db.hget(JobKeys(job).native_result("a"), "code") == b"REQUEST_CANCELLED"


def test_only_the_latest_requests_are_remembered():
    recent = RecentEntries(limit=2)
    _, _, again, last = places = [Position("stream", entry_id) for entry_id in (b"1", b"2", b"3", b"4")]
    for uri, place in zip("abac", places, strict=True):
        recent.remember(uri, place)
    assert [recent.find(uri) for uri in "abc"] == [again, None, last]


def test_a_coroutine_that_is_cancelled_withdraws_its_request_and_leaves_nothing(redis_server, db, job):
    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job) as requests:
            await requests.enqueue("other", x=np.zeros(1))
            waiting = [asyncio.create_task(requests.predict({"x": np.zeros(1)}, timeout=60)) for _ in range(5)]
            while await requests.db.xlen(job) < 6:
                await asyncio.sleep(0.01)
            for task in waiting:
                task.cancel()
            done = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(error, asyncio.CancelledError) for error in done)
        assert db.xlen(job) == 1
        async with AsyncInputQueue(port=redis_server.port, name=job) as requests:
            assert await requests.cancel("other") is True
            assert await requests.cancel("other") is False

    asyncio.run(main())
    assert list(db.scan_iter(JobKeys(job).native_result("*"))) == [JobKeys(job).native_result("other").encode()]


def test_a_coroutine_cancelled_while_it_sends_withdraws_what_arrived(redis_server, db, job):
    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job) as requests:
            await requests.enqueue("other", x=np.zeros(1))
            for turns in range(1, 40):
                task = asyncio.create_task(requests.predict({"x": np.zeros(1)}, timeout=60))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert [fields[b"uri"] for _, fields in db.xrange(job)] == [b"other"]


def test_cancelling_does_not_wait_for_redis(redis_server, db, job):
    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job) as requests:
            task = asyncio.create_task(requests.predict({"x": np.zeros(1)}, timeout=60))
            while await requests.db.xlen(job) < 1:
                await asyncio.sleep(0.01)
            db.client_pause(30_000, all=False)
            try:
                task.cancel()
                await asyncio.wait({task}, timeout=2)
                assert task.cancelled()
            finally:
                db.client_unpause()

    asyncio.run(main())
    assert db.xlen(job) == 0
