"""The asyncio client, on a real Redis with an echoing consumer."""

import asyncio
import gc
import os
import signal
import sys

import numpy as np
import pytest
import redis

from cluster_serving.client import (
    AsyncInputQueue,
    AsyncOutputQueue,
    DeadlineExceeded,
    InvalidInput,
    RedisUnavailable,
    ResultTimeout,
)
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import encode_result


@pytest.mark.usefixtures("echo")
def test_many_requests_share_a_connection_and_each_gets_its_own_result(redis_server, job):
    async def main():
        async with (
            AsyncInputQueue(port=redis_server.port, name=job) as requests,
            AsyncOutputQueue(url=redis_server.url, name=job) as results,
        ):
            answers = await asyncio.gather(
                *(requests.predict({"x": np.array([number])}, timeout=30) for number in range(300))
            )
            assert [answer.item() for answer in answers] == list(range(300))
            await asyncio.gather(*(requests.enqueue(f"r{number}", x=np.array([number])) for number in range(50)))
            answers = await asyncio.gather(*(results.query_and_delete(f"r{n}", timeout=30) for n in range(50)))
            assert [answer.item() for answer in answers] == list(range(50))
            assert await results.query("r0") is None
            await requests.enqueue("left", x=np.ones(1))
            both = await asyncio.gather(results.query("left", timeout=30), results.query("left", timeout=30))
            assert [answer.item() for answer in both] == [1, 1]
            assert {uri: value.item() for uri, value in (await results.dequeue()).items()} == {"left": 1}

    asyncio.run(main())


def test_failures_are_the_same_errors(redis_server, job):
    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job) as requests:
            with pytest.raises(InvalidInput):
                await requests.enqueue("a", x=object())
            with pytest.raises(ResultTimeout):
                await requests.predict({"x": np.zeros(1)}, timeout=0.1)
        async with AsyncOutputQueue(port=1, name=job) as results:
            with pytest.raises(RedisUnavailable):
                await results.query("a")

    asyncio.run(main())


def test_a_waiting_query_survives_a_restart_of_redis(redis_server, job, request):
    async def main():
        async with (
            AsyncOutputQueue(port=redis_server.port, name=job) as results,
            AsyncInputQueue(port=redis_server.port, name=job) as requests,
        ):
            waiting = asyncio.create_task(results.query("late", timeout=60))
            await asyncio.sleep(0.2)
            redis_server.stop()
            redis_server.start()
            request.getfixturevalue("echo")
            await requests.enqueue("late", x=np.ones(1))
            assert (await waiting).item() == 1

    asyncio.run(main())


def test_a_query_hears_when_the_deadline_passes(redis_server, db, job):
    async def main():
        async with (
            AsyncInputQueue(port=redis_server.port, name=job) as requests,
            AsyncOutputQueue(port=redis_server.port, name=job) as results,
        ):
            await requests.enqueue("late", x=np.ones(1), deadline=0.2)
            with pytest.raises(DeadlineExceeded):
                await results.query("late", timeout=600)

    asyncio.run(main())
    assert db.xlen(job) == 0


def test_a_client_that_came_before_redis_works_once_redis_is_there(redis_server, job, request):
    async def main():
        redis_server.stop()
        async with AsyncInputQueue(port=redis_server.port, name=job) as requests:
            with pytest.raises(RedisUnavailable):
                await requests.predict({"x": np.ones(1)}, timeout=1)
            redis_server.start()
            request.getfixturevalue("echo")
            assert (await requests.predict({"x": np.ones(1)}, timeout=30)).item() == 1

    asyncio.run(main())


def test_dequeue_takes_results_of_any_name(redis_server, db, job):
    key = JobKeys(job).result("").encode() + b"\xff"
    for name in (key, JobKeys(job).native_result("a").encode()):
        db.hset(name, mapping=encode_result(True, ["y"], [np.ones(1)]))

    async def main():
        async with AsyncOutputQueue(port=redis_server.port, name=job) as results:
            taken = await results.dequeue()
            assert set(taken) == {"a", "\udcff"}
            assert await results.dequeue() == {}
            db.hset(key, mapping=encode_result(True, ["y"], [np.ones(1)]))
            assert (await results.query_and_delete("\udcff")).item() == 1

    asyncio.run(main())
    assert not db.exists(key)


@pytest.mark.parametrize("timeout", [None, "5", float("nan")])
def test_a_timeout_that_is_no_number_is_refused(redis_server, db, job, timeout):
    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job) as requests:
            with pytest.raises(InvalidInput, match="timeout is .* expected seconds"):
                await requests.predict(np.zeros(1), timeout=timeout)

    asyncio.run(main())
    assert not db.exists(job)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="a task of this Python does not count its cancellations")
def test_no_command_loses_a_cancellation(redis_server, job):
    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job) as queue:
            await queue.db.ping()
            cancelled = 0
            while True:
                command = asyncio.create_task(queue.db.ping())
                # One turn of the event loop later each time, until the reply comes first.
                for _ in range(cancelled):
                    await asyncio.sleep(0)
                if not command.cancel():
                    break
                with pytest.raises(asyncio.CancelledError):
                    await command
                cancelled += 1
                await queue.db.ping()
            assert cancelled > 1

    asyncio.run(main())


def test_a_command_that_cannot_be_sent_ends_in_time(redis_server, db, job):
    process = db.info("server")["process_id"]

    async def main():
        async with AsyncInputQueue(port=redis_server.port, name=job, socket_timeout=0.2, reconnect=0) as queue:
            await queue.db.ping()
            os.kill(process, signal.SIGSTOP)
            with pytest.raises(redis.TimeoutError, match="writing to socket"):
                await queue.db.set("key", bytes(40_000_000))

    try:
        asyncio.run(main())
    finally:
        os.kill(process, signal.SIGCONT)


@pytest.mark.usefixtures("echo")
def test_a_queue_that_was_not_closed_in_its_event_loop_says_so_in_another(redis_server, job):
    requests = AsyncInputQueue(port=redis_server.port, name=job)

    async def predict(close):
        try:
            return (await requests.predict({"x": np.array([1.0])}, timeout=30)).item()
        finally:
            if close:
                await requests.close()

    assert asyncio.run(predict(close=True)) == 1
    first = asyncio.new_event_loop()
    assert first.run_until_complete(predict(close=False)) == 1
    with pytest.raises(RuntimeError, match="this queue was used in another event loop: make one in each"):
        asyncio.run(predict(close=False))
    assert first.run_until_complete(predict(close=True)) == 1
    first.close()


@pytest.mark.usefixtures("echo")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_queues_work_in_the_next_event_loop_if_theirs_is_gone(redis_server, job):
    requests, results = (kind(port=redis_server.port, name=job) for kind in (AsyncInputQueue, AsyncOutputQueue))

    async def predict():
        return (await requests.predict({"x": np.ones(1)}, timeout=30)).item()

    async def predict_many():
        return sum([result.item() async for result in requests.predict_many([{"x": np.ones(1)}])])

    async def stream():
        return sum([piece.item() async for piece in requests.stream({"x": np.ones(1)}, timeout=30)])

    async def enqueue():
        await requests.enqueue("one", x=np.ones(1))
        return (await results.query("one", timeout=30)).item()

    async def dequeue():
        return (await results.dequeue())["one"].item()

    async def cancel():
        return 1 - await requests.cancel("one")

    # Each twice: a broken connection of an earlier loop would be replaced by the second call at the latest.
    for call in (predict, enqueue, dequeue, cancel, predict_many, stream, predict, cancel, stream):
        assert asyncio.run(call()) == 1
    for queue in (requests, results):
        asyncio.run(queue.close())
    # Python warns of the connections that were not closed.
    gc.collect()
