"""`predict_many`: the results of any number of requests, in order, with a bounded number of them in flight."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from redis.exceptions import RedisError

from cluster_serving.client.dispatching.dispatcher import Dispatcher
from cluster_serving.client.enqueue import RequestOptions, pauses
from cluster_serving.client.result import Result, all_failed, failed, read_outcomes, read_result
from cluster_serving.client.sending.convert import inputs_of, stacked
from cluster_serving.client.sending.texts import TextInputs, converted, learn
from cluster_serving.protocol import columns
from cluster_serving.protocol.errors import InvalidInput, QueueFull, ServingError
from cluster_serving.protocol.inputs import Input
from cluster_serving.protocol.redis.connection import translated
from cluster_serving.protocol.scripts import run_async
from cluster_serving.protocol.tensors import Inputs

_IN_FLIGHT = 64
"""Default of the number of requests in flight, where the slots of the job do not tell it (`protocol.slots.at_once`)."""

TIMEOUT = 60.0
"""Default of the seconds in which each result has to come."""

T = TypeVar("T")


class Window:
    """The items that were taken and whose results were not yielded: gathered, sent, or ready.

    Args:
        in_flight: Most of them.
        together: Number of items that are sent together.

    Attributes:
        taken: Their number.
        ready: Results, in order, that are to be yielded next.
    """

    def __init__(self, in_flight: int, together: int) -> None:
        self._in_flight, self._together = in_flight, together
        self._gathered: list[object] = []
        self.taken = 0
        self.ready: deque[Result] = deque()

    @property
    def is_full(self) -> bool:
        """True if a result has to be yielded before the next item is taken."""
        return self.taken >= self._in_flight

    def take(self, item: object) -> list[object]:
        """Take an item; return those to send now, if there are some."""
        self._gathered.append(item)
        self.taken += 1
        return self.rest() if len(self._gathered) >= self._together else []

    def rest(self) -> list[object]:
        """Return the gathered items, which are sent now."""
        gathered, self._gathered = self._gathered, []
        return gathered

    def give(self) -> Result:
        """Remove and return the next result."""
        self.taken -= 1
        return self.ready.popleft()


class Batch:
    """The requests of one call of `predict_many`.

    Args:
        dispatcher: Connections to Redis.
        job: `jobName`.
        in_flight: Number of requests in flight; None for the default.
        timeout: Seconds for each request; they may pass while a full queue has no room.
        priority: One of `protocol.keys.PRIORITIES`.
        raise_errors: True to raise the first error instead of yielding a result with it.
        version: Version of the model that is to answer; None for the one that is served.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        job: str,
        in_flight: int | None,
        timeout: float,
        priority: str,
        raise_errors: bool,
        version: str | int | None = None,
    ) -> None:
        self._in_flight = in_flight
        self._dispatcher, self._job = dispatcher, job
        self._timeout, self._priority, self._raise_errors = timeout, priority, raise_errors
        self._version = version
        self._texts = TextInputs()
        self._tasks: deque[asyncio.Task[list[Result]]] = deque()

    async def results(self, items: Iterable[object] | AsyncIterable[object]) -> AsyncIterator[Result]:
        """Yield the results of the items in order; see `InputQueue.predict_many`."""
        window = await self.window()

        async def result() -> Result:
            if not window.ready:
                window.ready.extend(await self.next())
            return self.checked(window.give())

        try:
            async for item in _each(items):
                self.start(window.take(item))
                if window.is_full:
                    yield await result()
            self.start(window.rest())
            while window.taken:
                yield await result()
        finally:
            await self.cancel()

    async def window(self) -> Window:
        """Return the window of the items.

        By default the job has as many as of a large request of a front end. One group more is taken, which is sent as
        soon as another is answered, while the results of that one are yielded.
        """
        with suppress(ServingError, RedisError, OSError):
            await run_async(self._dispatcher.db, learn(self._job, self._texts))
        together, at_once = self._texts.together, self._texts.at_once or _IN_FLIGHT
        in_flight = self._in_flight or at_once + together
        self._places = asyncio.Semaphore(self._in_flight or max(2, at_once // together))
        return Window(in_flight, max(1, min(together, in_flight // 2)))

    def start(self, items: Sequence[object]) -> None:
        """Send the requests of some items."""
        if items:
            self._tasks.append(asyncio.create_task(self._results(items)))

    async def next(self) -> list[Result]:
        """Return the results of the oldest items that were sent together."""
        return await self._tasks.popleft()

    def checked(self, result: Result) -> Result:
        """Return a result, or raise its error if errors are to be raised."""
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

    async def _results(self, items: Sequence[object]) -> list[Result]:
        results: dict[int, Result] = {}
        # Conversion of each item would cost more than all else.
        records: Sequence[Mapping[str, Input]] | None = stacked(items) if self._texts.together > 1 else None
        places: Sequence[int] = range(len(items))
        if records is None:
            inputs = await self._converted(items, results)
            places, records = [*inputs], [*inputs.values()]
        chunks = columns.chunks(records, self._texts.together)
        async with self._places:
            if len(chunks) == 1:
                # A task costs a fifth of a request.
                found = [await self._answers(chunks[0][1], len(places))]
            else:
                found = await asyncio.gather(*(self._answers(part, len(indices)) for indices, part in chunks))
        for (indices, _), answers in zip(chunks, found):
            results.update(zip([places[index] for index in indices], answers))
        if len(chunks) < len(places):
            # Others of its entry may have caused that a record is refused.
            again = [at for at, index in enumerate(places) if isinstance(results[index].error, QueueFull)]
            for at, (result,) in zip(again, await asyncio.gather(*(self._answers(records[at], 1) for at in again))):
                results[places[at]] = result
        return [results[index] for index in range(len(items))]

    async def _converted(self, items: Sequence[object], results: dict[int, Result]) -> dict[int, Mapping[str, Input]]:
        """Return the inputs of the items, by index; add the results of those that are refused."""
        inputs: dict[int, Mapping[str, Input]] = {}
        for index, item in enumerate(items):
            try:
                with translated(self._dispatcher.db):
                    procedure = converted(self._job, self._texts, inputs_of(item))
                    inputs[index] = await run_async(self._dispatcher.db, procedure)
            except ServingError as error:
                results[index] = failed(error)
        return inputs

    async def _answers(self, inputs: Inputs, count: int) -> list[Result]:
        deadline = time.monotonic() + self._timeout
        left = self._timeout
        pause = pauses()
        column = count if count > 1 else 0
        try:
            while True:
                try:
                    fields = await self._dispatcher.request(
                        self._job, inputs, left, self._priority, self._version, records=column
                    )
                    return [read_result(fields)] if count == 1 else read_outcomes(fields, count)
                except QueueFull:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise
                await asyncio.sleep(min(next(pause), left))
        except ServingError as error:
            return all_failed(error, count)


async def _each(items: Iterable[object] | AsyncIterable[object]) -> AsyncIterator[object]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def check(in_flight: int | None, timeout: float, priority: str, version: str | int | None = None) -> None:
    """Check the options of `predict_many`.

    Raises:
        InvalidInput: If an option has an invalid value.
    """
    RequestOptions.waiting(timeout, priority, version)
    if in_flight is not None and (not isinstance(in_flight, int) or in_flight < 1):
        raise InvalidInput(f"in_flight is {in_flight!r}; expected a whole number, 1 or more")


def results_in_thread(make: Callable[[], Batch], items: Iterable[object]) -> Iterator[Result]:
    """Yield the results of the items in order, with asyncio in a thread; the items are taken in the caller's thread.

    `make` is called in that thread.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=_run_forever, args=(loop,), name="predict_many", daemon=True)
    thread.start()

    process = os.getpid()
    ending: list[Future[None]] = []

    def run(step: Coroutine[Any, Any, T]) -> T:
        if os.getpid() != process:
            step.close()
            raise RuntimeError("this iterator belongs to another process: call predict_many in each process")
        return asyncio.run_coroutine_threadsafe(step, loop).result()

    async def begin() -> Batch:
        return make()

    async def end() -> None:
        try:
            await batch.close()
        finally:
            at_exit.detach()
            loop.stop()

    def begin_to_end() -> None:
        # A future, which holds the task; nobody waits for it.
        if not ending:
            ending.append(asyncio.run_coroutine_threadsafe(end(), loop))

    def wait() -> None:
        begin_to_end()
        thread.join()

    try:
        batch = run(begin())
    except BaseException:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        raise
    # If the caller still holds the iterator at exit: the thread has ended when Python closes it.
    at_exit = weakref.finalize(batch, wait)
    try:
        window = run(batch.window())

        def result() -> Result:
            if not window.ready:
                window.ready.extend(run(batch.next()))
            return batch.checked(window.give())

        for item in items:
            if together := window.take(item):
                loop.call_soon_threadsafe(batch.start, together)
            if window.is_full:
                yield result()
        loop.call_soon_threadsafe(batch.start, window.rest())
        while window.taken:
            yield result()
    except BaseException as error:
        if os.getpid() != process:
            at_exit.detach()
        elif isinstance(error, GeneratorExit):
            # The collector may do this at any time in any thread, also in one that this end would wait for.
            begin_to_end()
        else:
            wait()
        raise
    else:
        wait()


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
