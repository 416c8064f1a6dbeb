"""Many requests of one process over few connections, on a real Redis with an echoing consumer."""

import asyncio
import time

import numpy as np
import pytest

from cluster_serving.client import announcements
from cluster_serving.client.dispatching import dispatcher as dispatcher_module
from cluster_serving.client.dispatching.dispatcher import Dispatcher
from cluster_serving.client.result import read_result
from cluster_serving.connectors.slot.answer import MAX_PUBLISHED_BYTES
from cluster_serving.protocol.compat import timeout as time_limit
from cluster_serving.protocol.errors import (
    InvalidInput,
    QueueFull,
    RedisUnavailable,
    RequestCancelled,
    RequestLost,
    ResultTimeout,
)
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.redis.connection import connect_async
from tests.support.fixtures.echo import Consumer


async def echoed(dispatcher, job, number, timeout=30):
    fields = await dispatcher.request(job, {"x": np.array([number])}, timeout)
    return read_result(fields).item()


async def until_deleted(dispatcher, job):
    async with time_limit(10):
        while [key async for key in dispatcher.db.scan_iter(JobKeys(job).native_result("*"))]:
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("echo")
def test_each_of_many_gets_its_own_result_and_nothing_is_left(redis_server, job):
    async def main():
        dispatcher = Dispatcher(connect_async(url=redis_server.url))
        assert await asyncio.gather(*(echoed(dispatcher, job, n) for n in range(1000))) == list(range(1000))
        assert dispatcher.waiting == 0
        await until_deleted(dispatcher, job)
        assert await dispatcher.db.xlen(job) == 0
        await dispatcher.close()

    asyncio.run(main())


@pytest.mark.usefixtures("echo")
def test_small_results_come_with_the_news_of_them_and_large_ones_are_fetched(redis_server, job, db):
    def fetched():
        return db.info("commandstats").get("cmdstat_hgetall", {"calls": 0})["calls"]

    async def main():
        dispatcher = Dispatcher(connect_async(url=redis_server.url))
        before = fetched()
        for number in range(3):
            assert await echoed(dispatcher, job, number) == number
        assert fetched() == before
        large = np.arange(MAX_PUBLISHED_BYTES)
        fields = await dispatcher.request(job, {"x": large}, 30)
        assert np.array_equal(read_result(fields), large)
        assert fetched() == before + 1
        await until_deleted(dispatcher, job)
        await dispatcher.close()

    asyncio.run(main())


def test_failures_are_the_errors_of_the_table(redis_server, job, monkeypatch):
    monkeypatch.setattr(announcements, "SUBSCRIBE_TIMEOUT", 0.5)

    async def main():
        dispatcher = Dispatcher(connect_async(url=redis_server.url))
        with pytest.raises(InvalidInput, match="no inputs"):
            await dispatcher.request(job, {}, 1)
        with pytest.raises(ResultTimeout, match=job):
            await echoed(dispatcher, job, 1, timeout=0.2)
        assert dispatcher.waiting == 0
        await dispatcher.close()
        unreachable = Dispatcher(connect_async(url="redis://127.0.0.1:1/0"))
        with pytest.raises(RedisUnavailable, match="127.0.0.1:1"):
            await echoed(unreachable, job, 1)
        await unreachable.close()

    asyncio.run(main())


@pytest.mark.usefixtures("echo")
def test_requests_that_are_queued_together_may_be_of_several_jobs_and_sizes(redis_server, job):
    async def refused(dispatcher, number):
        with pytest.raises(QueueFull, match=f"'full {job}' holds 2 requests"):
            await dispatcher.request(f"full {job}", {"x": np.array([number])}, 1)

    async def left_alone(dispatcher, number):
        with pytest.raises(ResultTimeout):
            await dispatcher.request(f"full {job}", {"x": np.array([number])}, 1)

    async def large(dispatcher, number):
        fields = await dispatcher.request(job, {"x": np.full(300_000, number)}, 30)
        return read_result(fields)

    async def main():
        dispatcher = Dispatcher(connect_async(url=redis_server.url))
        await dispatcher.db.hset(JobKeys(f"full {job}").limits, "maxQueueLength", 2)
        # The first keeps the others waiting, so that they leave together.
        first = asyncio.create_task(echoed(dispatcher, job, 0))
        await asyncio.sleep(0)
        found = await asyncio.gather(
            *(left_alone(dispatcher, n) for n in range(2)),
            *(refused(dispatcher, n) for n in range(3)),
            *(large(dispatcher, n) for n in range(3)),
            *(echoed(dispatcher, job, n) for n in range(5)),
        )
        assert [array[-1] for array in found[5:8]] == [0, 1, 2]
        assert found[8:] == list(range(5))
        assert await first == 0
        await dispatcher.close()

    asyncio.run(main())


@pytest.mark.usefixtures("echo")
def test_what_redis_refuses_of_one_request_keeps_no_result_from_others(redis_server, job, db):
    db.acl_setuser("no-xdel", enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", "-xdel"])

    async def main():
        dispatcher = Dispatcher(connect_async(url=redis_server.url.replace("://", "://no-xdel:any@")))
        with pytest.raises(ResultTimeout):
            await echoed(dispatcher, f"{job}-unserved", 1, timeout=0.2)
        assert await echoed(dispatcher, job, 2, timeout=10) == 2
        await dispatcher.close()

    try:
        asyncio.run(main())
    finally:
        db.acl_deluser("no-xdel")
        db.delete(f"{job}-unserved")


@pytest.mark.usefixtures("echo")
def test_results_arrive_though_redis_does_not_delete_them(redis_server, job, db):
    db.acl_setuser("no-unlink", enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", "-unlink"])

    async def main():
        dispatcher = Dispatcher(connect_async(url=redis_server.url.replace("://", "://no-unlink:any@")))
        assert [await echoed(dispatcher, job, n, timeout=10) for n in range(3)] == [0, 1, 2]
        await dispatcher.close()

    try:
        asyncio.run(main())
    finally:
        db.acl_deluser("no-unlink")


@pytest.mark.usefixtures("echo")
def test_a_lost_subscription_loses_no_result(redis_server, job):
    async def main():
        dispatcher = Dispatcher(connect_async(url=redis_server.url))
        assert await echoed(dispatcher, job, 0) == 0
        waiting = [asyncio.create_task(echoed(dispatcher, job, n)) for n in range(50)]
        await asyncio.sleep(0)
        await dispatcher.db.client_kill_filter(_type="pubsub")
        assert await asyncio.gather(*waiting) == list(range(50))
        await dispatcher.close()

    asyncio.run(main())


def test_requests_that_redis_has_lost_are_told_so_and_no_others(redis_server, job, db, monkeypatch):
    monkeypatch.setattr(dispatcher_module, "_WATCH_INTERVAL", 0.1)

    async def main():
        dispatcher = Dispatcher(connect_async(url=redis_server.url))
        lost = [asyncio.create_task(echoed(dispatcher, job, n, timeout=60)) for n in range(300)]
        kept = asyncio.create_task(dispatcher.request(job, {"x": np.array([1])}, 60, "high"))
        async with time_limit(30):
            while await dispatcher.db.xlen(job) < len(lost) or not await dispatcher.db.xlen(f"{job}:high"):
                await asyncio.sleep(0.01)
        # In a failover, the latest are lost.
        ids = [entry for entry, _ in await dispatcher.db.xrange(job)]
        await dispatcher.db.xdel(job, *ids[200:])
        late = await asyncio.gather(*lost[200:], return_exceptions=True)
        assert {type(error) for error in late} == {RequestLost}
        assert not any(task.done() for task in lost[:200])
        await dispatcher.db.delete(job)
        late = await asyncio.gather(*lost, return_exceptions=True)
        assert {type(error) for error in late} == {RequestLost}
        assert job in str(late[0])
        assert not kept.done()
        # Its answer was announced to nobody, so that only the look finds it.
        (entry,) = [uri for _, fields in await dispatcher.db.xrange(f"{job}:high") for uri in [fields[b"uri"].decode()]]
        await dispatcher.db.hset(JobKeys(job).native_result(entry), "value", "here")
        await dispatcher.db.delete(f"{job}:high")
        assert await kept == {b"value": b"here"}
        await dispatcher.close()

    asyncio.run(main())


def test_requests_that_redis_has_lost_are_sent_again_within_the_retry_budget(redis_server, job, db, monkeypatch):
    monkeypatch.setattr(dispatcher_module, "_WATCH_INTERVAL", 0.1)

    async def main():
        dispatcher = Dispatcher(connect_async(url=redis_server.url), retry_budget=1)
        waiting = [asyncio.create_task(echoed(dispatcher, job, n, timeout=60)) for n in range(20)]
        async with time_limit(30):
            while await dispatcher.db.xlen(job) < len(waiting):
                await asyncio.sleep(0.01)
        await dispatcher.db.delete(job)
        with Consumer(redis_server.url, job):
            assert await asyncio.gather(*waiting) == list(range(20))
        await dispatcher.close()

    asyncio.run(main())


async def until_queued(dispatcher, job, count=1):
    async with time_limit(30):
        while await dispatcher.db.xlen(job) < count:
            await asyncio.sleep(0.01)


def test_a_request_that_is_sent_again_keeps_its_timeout(redis_server, job, db, monkeypatch):
    monkeypatch.setattr(dispatcher_module, "_WATCH_INTERVAL", 0.1)

    async def main():
        dispatcher = Dispatcher(connect_async(url=redis_server.url), retry_budget=1)
        asked = asyncio.create_task(dispatcher.request(job, {"x": np.array([1])}, 3))
        await until_queued(dispatcher, job)
        await dispatcher.db.delete(job)
        await until_queued(dispatcher, job)
        ((_, fields),) = await dispatcher.db.xrange(job)
        assert 0 < int(fields[b"deadline"]) < 3000
        with pytest.raises(ResultTimeout, match="within 3 s"):
            await asyncio.wait_for(asked, 30)
        await dispatcher.close()
        assert db.xlen(job) == 0

    asyncio.run(main())


def test_a_loss_that_is_noticed_when_the_timeout_has_passed_ends_the_wait(redis_server, job):
    async def main():
        dispatcher = Dispatcher(connect_async(url=redis_server.url), retry_budget=1)
        asked = asyncio.create_task(dispatcher.request(job, {"x": np.array([1])}, 1))
        await until_queued(dispatcher, job)
        (pending,) = dispatcher._pending.values()
        # One turn of the event loop: the loss is noticed, and the timer finds that the wait has ended already.
        pending.result.set_exception(RequestLost("lost"))
        time.sleep(1.1)
        with pytest.raises(ResultTimeout, match="within 1 s"):
            await asyncio.wait_for(asked, 30)
        await dispatcher.close()

    asyncio.run(main())


def test_closing_ends_the_requests_that_wait_and_leaves_nothing(redis_server, job, db):
    async def main():
        before = len(db.client_list())
        dispatcher = Dispatcher(connect_async(url=redis_server.url))
        waiting = [asyncio.create_task(echoed(dispatcher, job, n)) for n in range(20)]
        await until_queued(dispatcher, job, 20)
        waiting += [asyncio.create_task(echoed(dispatcher, job, n)) for n in range(20)]
        await asyncio.sleep(0)
        await dispatcher.close()
        assert db.xlen(job) == 0
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert {(type(error), str(error)) for error in ended} == {
            (RequestCancelled, "the client was closed before the answer came")
        }
        async with time_limit(10):
            while len(db.client_list()) > before:
                await asyncio.sleep(0.01)
        assert db.xlen(job) == 0

    asyncio.run(main())
