"""Many requests of one process over few connections, on a real Redis with an echoing consumer."""

import asyncio

import numpy as np
import pytest

from cluster_serving.client.connection import connect_async
from cluster_serving.client.errors import InvalidInput, RedisUnavailable, ResultTimeout
from cluster_serving.client.exchange import Exchange
from cluster_serving.client.protocol import decode_result, result_pattern


async def echoed(exchange, job, number, timeout=30):
    fields = await exchange.request(job, {"x": np.array([number])}, timeout)
    return decode_result(fields).item()


async def until_deleted(exchange, job):
    async with asyncio.timeout(10):
        while [key async for key in exchange.db.scan_iter(result_pattern(job))]:
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("echo")
def test_each_of_many_gets_its_own_result_and_nothing_is_left(redis_server, job):
    async def main():
        exchange = Exchange(connect_async(url=redis_server.url))
        assert await asyncio.gather(*(echoed(exchange, job, n) for n in range(1000))) == list(range(1000))
        assert exchange.waiting == 0
        await until_deleted(exchange, job)
        assert await exchange.db.xlen(job) == 0
        await exchange.close()

    asyncio.run(main())


def test_failures_are_the_errors_of_the_table(redis_server, job):
    async def main():
        exchange = Exchange(connect_async(url=redis_server.url))
        with pytest.raises(InvalidInput, match="no inputs"):
            await exchange.request(job, {}, 1)
        with pytest.raises(ResultTimeout, match=job):
            await echoed(exchange, job, 1, timeout=0.2)
        assert exchange.waiting == 0
        await exchange.close()
        unreachable = Exchange(connect_async(url="redis://127.0.0.1:1/0"))
        with pytest.raises(RedisUnavailable, match="127.0.0.1:1"):
            await echoed(unreachable, job, 1)
        await unreachable.close()

    asyncio.run(main())


@pytest.mark.usefixtures("echo")
def test_what_redis_refuses_of_one_request_keeps_no_result_from_others(redis_server, job, db):
    db.acl_setuser("no-xdel", enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", "-xdel"])

    async def main():
        exchange = Exchange(connect_async(url=redis_server.url.replace("://", "://no-xdel:any@")))
        with pytest.raises(ResultTimeout):
            await echoed(exchange, f"{job}-unserved", 1, timeout=0.2)
        assert await echoed(exchange, job, 2, timeout=10) == 2
        await exchange.close()

    try:
        asyncio.run(main())
    finally:
        db.acl_deluser("no-xdel")
        db.delete(f"{job}-unserved")


@pytest.mark.usefixtures("echo")
def test_a_lost_subscription_loses_no_result(redis_server, job):
    async def main():
        exchange = Exchange(connect_async(url=redis_server.url))
        assert await echoed(exchange, job, 0) == 0
        waiting = [asyncio.create_task(echoed(exchange, job, n)) for n in range(50)]
        await asyncio.sleep(0)
        await exchange.db.client_kill_filter(_type="pubsub")
        assert await asyncio.gather(*waiting) == list(range(50))
        await exchange.close()

    asyncio.run(main())
