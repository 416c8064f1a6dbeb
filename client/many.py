"""`predict_many`: the results of any number of requests, in order, with a bounded number of them in flight."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from cluster_serving.client.convert import inputs_of
from cluster_serving.client.dispatcher import Dispatcher
from cluster_serving.client.enqueue import RequestOptions, pauses
from cluster_serving.client.result import Result, failed, read_result
from cluster_serving.client.texts import TextInputs, converted
from cluster_serving.protocol.connection import translated
from cluster_serving.protocol.errors import InvalidInput, QueueFull, ServingError
from cluster_serving.protocol.scripts import run_async

IN_FLIGHT = 64
"""Default of the number of requests in flight."""

TIMEOUT = 60.0
"""Default of the seconds in which each result has to come."""

T = TypeVar("T")


class Batch:
    """The requests of one call of `predict_many`.

    Args:
        dispatcher: Connections to Redis.
        job: `jobName`.
        in_flight: Number of requests in flight.
        timeout: Seconds for each request; they may pass while a full queue has no room.
        priority: One of `protocol.keys.PRIORITIES`.
        raise_errors: True to raise the first error instead of yielding a result with it.
        version: Version of the model that is to answer; None for the one that is served.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        job: str,
        in_flight: int,
        timeout: float,
        priority: str,
        raise_errors: bool,
        version: str | int | None = None,
    ) -> None:
        self.in_flight = in_flight
        self._dispatcher, self._job = dispatcher, job
        self._timeout, self._priority, self._raise_errors = timeout, priority, raise_errors
        self._version = version
        self._texts = TextInputs()
        self._tasks: deque[asyncio.Task[Result]] = deque()

    async def results(self, items: Iterable[object] | AsyncIterable[object]) -> AsyncIterator[Result]:
        """Yield the results of the items in order; see `InputQueue.predict_many`."""
        try:
            async for item in _each(items):
                self.start(item)
                if len(self._tasks) >= self.in_flight:
                    yield await self.next()
            while self._tasks:
                yield await self.next()
        finally:
            await self.cancel()

    def start(self, item: object) -> None:
        """Send the request of an item."""
        self._tasks.append(asyncio.create_task(self._result(item)))

    async def next(self) -> Result:
        """Return the result of the oldest request."""
        result = await self._tasks.popleft()
        if self._raise_errors and result.error is not None:
            raise result.error
        return result

    async def cancel(self) -> None:
        """Withdraw the requests that have no result."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Withdraw the requests that have no result, and close the connections."""
        await self.cancel()
        await self._dispatcher.close()

    async def _result(self, item: object) -> Result:
        deadline = time.monotonic() + self._timeout
        left = self._timeout
        pause = pauses()
        try:
            with translated(self._dispatcher.db):
                inputs = await run_async(self._dispatcher.db, converted(self._job, self._texts, inputs_of(item)))
            while True:
                try:
                    return read_result(
                        await self._dispatcher.request(self._job, inputs, left, self._priority, self._version)
                    )
                except QueueFull:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise
                await asyncio.sleep(min(next(pause), left))
        except ServingError as error:
            return failed(error)


async def _each(items: Iterable[object] | AsyncIterable[object]) -> AsyncIterator[object]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def check(in_flight: int, timeout: float, priority: str, version: str | int | None = None) -> None:
    """Check the options of `predict_many`.

    Raises:
        InvalidInput: If an option has an invalid value.
    """
    RequestOptions.waiting(timeout, priority, version)
    if not isinstance(in_flight, int) or in_flight < 1:
        raise InvalidInput(f"in_flight is {in_flight!r}; expected a whole number, 1 or more")


def results_in_thread(make: Callable[[], Batch], items: Iterable[object]) -> Iterator[Result]:
    """Yield the results of the items in order, with asyncio in a thread; the items are taken in the caller's thread.

    `make` is called in that thread.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="predict_many", daemon=True)
    thread.start()

    process = os.getpid()

    def run(step: Coroutine[Any, Any, T]) -> T:
        if os.getpid() != process:
            step.close()
            raise RuntimeError("this iterator belongs to another process: call predict_many in each process")
        return asyncio.run_coroutine_threadsafe(step, loop).result()

    async def begin() -> Batch:
        return make()

    def stop() -> None:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def end() -> None:
        run(batch.close())
        stop()

    try:
        batch = run(begin())
    except BaseException:
        stop()
        raise
    # Called at exit if the caller still holds the iterator: the thread has ended when Python closes it.
    close = weakref.finalize(batch, end)
    try:
        in_flight = 0
        for item in items:
            loop.call_soon_threadsafe(batch.start, item)
            in_flight += 1
            if in_flight >= batch.in_flight:
                in_flight -= 1
                yield run(batch.next())
        for _ in range(in_flight):
            yield run(batch.next())
    finally:
        if os.getpid() == process:
            close()
        else:
            close.detach()
