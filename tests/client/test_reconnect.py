"""Lost connections: a real Redis is killed and started again while clients work."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import redis

from cluster_serving.client import AsyncInputQueue, AsyncOutputQueue, InputQueue, OutputQueue, RedisUnavailable
from cluster_serving.client.dispatching.dispatcher import Dispatcher
from cluster_serving.client.result import read_result
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.redis.connection import connect_async
from tests.support.fixtures.echo import Consumer
from tests.support.fixtures.redis_server import RedisServer
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def server(tmp_path):
    # By default, a Redis that is killed loses what it has confirmed while the disk was slow.
    server = RedisServer(tmp_path, "--appendfsync", "always")
    yield server
    server.stop()


# When a connection breaks, redis-py may connect anew from two commands at once, and drop one of both.
@pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
def test_killing_redis_costs_nobody_a_request(server):
    """Four kinds of clients work while Redis is killed three times."""
    stopped = threading.Event()
    done = dict.fromkeys(["predict", "query", "predict_many", "asyncio"], 0)

    def until_stopped(kind, ask):
        number = 0
        while not stopped.is_set():
            assert ask(number).item() == number
            number += 1
            done[kind] = number

    def predict():
        with InputQueue(port=server.port, name="j") as requests:
            until_stopped("predict", lambda number: requests.predict(np.array([number]), timeout=60))

    def query():
        with InputQueue(port=server.port, name="j") as requests, OutputQueue(port=server.port, name="j") as results:
            until_stopped(
                "query", lambda number: results.query_and_delete(requests.enqueue(f"r{number}", number), timeout=60)
            )

    def predict_many():
        def numbers():
            while not stopped.is_set():
                yield np.array([len(found)])

        found = []
        with InputQueue(port=server.port, name="j") as requests:
            for result in requests.predict_many(numbers(), in_flight=1):
                assert result.item() == len(found)
                found.append(result)
                done["predict_many"] += 1

    async def by_asyncio():
        async with (
            AsyncInputQueue(port=server.port, name="j") as requests,
            AsyncOutputQueue(port=server.port, name="j") as results,
        ):
            while not stopped.is_set():
                number = done["asyncio"]
                calls = [requests.predict(np.array([number + n]), timeout=60) for n in range(8)]
                assert [answer.item() for answer in await asyncio.gather(*calls)] == list(range(number, number + 8))
                await requests.enqueue("queued", {"x": number})
                assert (await results.query_and_delete("queued", timeout=60)).item() == number
                done["asyncio"] += 8

    with Consumer(server.url, "j"), ThreadPoolExecutor(4) as pool:
        try:
            clients = [
                pool.submit(client) for client in (predict, query, predict_many, lambda: asyncio.run(by_asyncio()))
            ]
            for _ in range(3):
                goal = {kind: count + 20 for kind, count in done.items()}
                wait_until(
                    lambda goal=goal: any(client.done() for client in clients) or all(done[k] > goal[k] for k in goal)
                )
                server.kill()
                server.start()
        finally:
            stopped.set()
        for client in clients:
            client.result()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_request_that_redis_has_lost_is_sent_again(server, asynchronous):
    def predict():
        with InputQueue(port=server.port, name="j") as requests:
            return requests.predict(np.array([7]), timeout=60)

    async def predict_async():
        async with AsyncInputQueue(port=server.port, name="j") as requests:
            return await requests.predict(np.array([7]), timeout=60)

    with redis.Redis(port=server.port) as db, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: asyncio.run(predict_async()) if asynchronous else predict())
        wait_until(lambda: db.xlen("j") == 1)
        server.kill()
        server.forget()
        server.start()
        with Consumer(server.url, "j"):
            assert waiting.result(60).item() == 7
        assert not any(db.xlen(stream) for stream in JobKeys("j").streams)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_redis_that_hangs_is_waited_for_within_the_timeout(server, asynchronous):
    """Commands time out several times meanwhile."""
    address = {"port": server.port, "name": "j", "socket_timeout": 0.2}

    def use():
        with InputQueue(**address) as requests, OutputQueue(**address) as results:
            assert requests.predict(np.array([1]), timeout=60).item() == 1
            assert results.query("unknown") is None
            server.pause()
            threading.Timer(2, server.resume).start()
            assert results.query_and_delete(requests.enqueue("a", {"x": 7}, timeout=60), timeout=60).item() == 7
            server.pause()
            threading.Timer(2, server.resume).start()
            return requests.predict(np.array([7]), timeout=60)

    async def use_async():
        async with AsyncInputQueue(**address) as requests, AsyncOutputQueue(**address) as results:
            assert (await requests.predict(np.array([1]), timeout=60)).item() == 1
            assert await results.query("unknown") is None
            server.pause()
            threading.Timer(2, server.resume).start()
            await requests.enqueue("a", {"x": 7}, timeout=60)
            assert (await results.query_and_delete("a", timeout=60)).item() == 7
            server.pause()
            threading.Timer(2, server.resume).start()
            return await requests.predict(np.array([7]), timeout=60)

    with Consumer(server.url, "j"):
        assert (asyncio.run(use_async()) if asynchronous else use()).item() == 7


def test_the_timeout_bounds_the_attempts(server):
    with (
        InputQueue(port=server.port, name="j") as requests,
        OutputQueue(port=server.port, name="j") as results,
        InputQueue(port=server.port, name="j", reconnect=0) as hurried,
    ):
        for queue in (requests, hurried):
            queue.enqueue("a", x=1.0)
        assert results.query("a") is None
        server.stop()
        for call in (
            lambda: requests.predict({"x": 1.0}, timeout=1),
            lambda: requests.enqueue("b", {"x": 1.0}, timeout=1),
            lambda: results.query("a", timeout=1),
        ):
            started = time.monotonic()
            with pytest.raises(RedisUnavailable):
                call()
            assert time.monotonic() - started >= 0.9
        with pytest.raises(RedisUnavailable):
            hurried.predict({"x": 1.0}, timeout=3600)


def test_a_result_is_read_once_redis_is_back(server):
    with OutputQueue(port=server.port, name="j") as results, ThreadPoolExecutor(2) as pool:
        assert results.dequeue() == {}
        server.kill()
        query, dequeue = pool.submit(results.query, "a"), pool.submit(results.dequeue)
        time.sleep(0.5)
        assert not query.done()
        server.start()
        assert (query.result(30), dequeue.result(30)) == (None, {})


# See above.
@pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
def test_a_dispatcher_with_a_retry_budget_waits_for_a_redis_that_is_started_again_and_not_for_ever(server):
    async def main():
        # A start of Redis takes as long as the machine is busy.
        patient, hasty = (Dispatcher(connect_async(url=server.url), retry_budget=seconds) for seconds in (60, 3))

        async def ask(number, dispatcher=patient):
            fields = await dispatcher.request("j", {"x": np.array([number])}, 100)
            return read_result(fields).item()

        assert await ask(1) == 1
        server.kill()
        waiting = [asyncio.create_task(ask(number)) for number in range(4)]
        # Longer than redis-py's attempts.
        await asyncio.sleep(1.5)
        assert not any(task.done() for task in waiting)
        await asyncio.to_thread(server.start)
        assert [await ask(1, hasty), *await asyncio.gather(*waiting)] == [1, *range(4)]
        server.kill()
        with pytest.raises(RedisUnavailable):
            await ask(1, hasty)
        await asyncio.to_thread(server.start)
        assert await ask(2) == 2
        for dispatcher in (patient, hasty):
            await dispatcher.close()

    with Consumer(server.url, "j"):
        asyncio.run(main())
