"""The asyncio client: the queues of `client.queues` as coroutines, with the same arguments.

All coroutines of a queue share a few connections, so thousands of requests may be in flight.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import redis.asyncio
from redis.exceptions import RedisError

from cluster_serving.client.abilities import (
    PIECE_TIMEOUT,
    TIMEOUT,
    AsyncPieces,
    AsyncSubscription,
    Batch,
    Dispatcher,
    Outlet,
    PieceIteration,
    PieceOrRestart,
    TextInputs,
    check,
    converted,
    inputs_of,
    pieces_of,
    wait_for,
)
from cluster_serving.client.cancel import cancel
from cluster_serving.client.connected import RECONNECT_SECONDS, Reconnecting
from cluster_serving.client.enqueue import RequestOptions, enqueue, split
from cluster_serving.client.fetch import SCAN_COUNT, batched, fetch, fetch_recent, result_timeout_async, results_of
from cluster_serving.client.positions import recent_entries
from cluster_serving.client.queues import check_query, looks
from cluster_serving.client.result import Result, read_result
from cluster_serving.protocol.entry import PIECES
from cluster_serving.protocol.keys import DEFAULT_JOB, NORMAL, JobKeys
from cluster_serving.protocol.pieces import BEGINNING
from cluster_serving.protocol.redis.connection import connect_async
from cluster_serving.protocol.results import Fields
from cluster_serving.protocol.scripts import run_async

if TYPE_CHECKING:
    from typing_extensions import Self


class _AsyncQueue(Reconnecting):
    """Base of both queues: the job's name and a client of its Redis.

    Connections belong to the event loop that uses the queue first. If that one is closed, the next one gets new ones.
    """

    def __init__(
        self,
        host: str | None = None,
        port: int | str | None = None,
        name: str = DEFAULT_JOB,
        *,
        url: str | None = None,
        reconnect: float = RECONNECT_SECONDS,
        **redis_options: Any,
    ) -> None:
        self._address = {"host": host or "localhost", "port": port or 6379, "url": url, "job": name, **redis_options}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open()
        super().__init__(self._db, name, reconnect)
        self._recent = recent_entries(self._db, name)

    @property
    def db(self) -> redis.asyncio.Redis:
        """Client of Redis for the running event loop."""
        self._use_loop()
        return self._db

    @property
    def _subscription(self) -> AsyncSubscription:
        self._use_loop()
        return self._subscribed

    def _open(self) -> None:
        self._client = self._db = connect_async(**self._address)
        self._subscribed = AsyncSubscription(self._db)

    def _use_loop(self) -> None:
        """Open connections for the running event loop, if those that are open are of one that is closed.

        Raises:
            RuntimeError: If the queue is used in another event loop, which is not closed.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if loop is self._loop:
            return
        if self._loop is not None:
            if not self._loop.is_closed():
                raise RuntimeError(
                    "this queue was used in another event loop: make one in each event loop (asyncio.run begins one), "
                    "or close it before"
                )
            self._open()
        self._loop = loop

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._subscription.close()
        await self.db.aclose()
        self._loop = None


class AsyncOutputQueue(_AsyncQueue):
    """Reads the results of one job; see `client.queues.OutputQueue` for arguments and errors."""

    async def query(self, uri: str, delete: bool = False, timeout: float | None = None) -> Result | None:
        """Return the result of a request; see `OutputQueue.query`."""
        check_query(uri, timeout)
        with self._using_redis(timeout):
            fields = await run_async(self.db, fetch(self.name, uri, delete))
        if fields is None and timeout is not None:
            with self._using_redis(timeout):
                end = time.monotonic() + timeout
                async with self._subscription.announcements(JobKeys(self.name).result(uri)) as event:
                    for until in looks(self._recent.find(uri), end):
                        fields = fields or await wait_for(
                            event, lambda: self._fetch_queued(uri, delete), until - time.monotonic()
                        )
        if fields is None:
            if timeout is None:
                return None
            raise await result_timeout_async(self.db, self.name, timeout, uri)
        self._recent.forget(uri)
        return read_result(fields)

    async def query_and_delete(self, uri: str, timeout: float | None = None) -> Result | None:
        """Return the result of a request as `query` does, and delete the result from Redis."""
        return await self.query(uri, delete=True, timeout=timeout)

    async def dequeue(self) -> dict[str, Result]:
        """Return all results in Redis and delete them; see `OutputQueue.dequeue`."""
        results: dict[bytes, Fields] = {}
        with self._using_redis():
            async for key in self.db.scan_iter(match=JobKeys(self.name).result_pattern, count=SCAN_COUNT, _type="HASH"):
                if JobKeys(self.name).uri_of(key) is not None and (fields := await self.db.hgetall(key)):  # type: ignore[misc]
                    results[key] = fields
        # Deleted last, as in the synchronous queue.
        with suppress(RedisError):
            for keys in batched(results, SCAN_COUNT):
                await self.db.delete(*keys)
        return results_of(self.name, results, self._recent)

    async def _fetch_queued(self, uri: str, delete: bool) -> Fields | None:
        return await run_async(self.db, fetch_recent(self.name, uri, self._recent, delete))


class AsyncInputQueue(_AsyncQueue):
    """Queues requests for one job; see `client.queues.InputQueue` for arguments and errors."""

    _dispatching: Dispatcher | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._outlet, self._texts = Outlet(), TextInputs()

    @property
    def _dispatcher(self) -> Dispatcher:
        db = self.db
        if self._dispatching is None:
            self._dispatching = Dispatcher(db, self.name, retry_budget=self._retry_budget)
        return self._dispatching

    def _open(self) -> None:
        super()._open()
        self._dispatching = None

    async def close(self) -> None:
        """Close the connections, once the requests of cancelled coroutines are withdrawn."""
        await self._subscription.close()
        await self._dispatcher.close()
        self._loop = None

    @overload
    async def enqueue(
        self,
        uri: str,
        inputs: object,
        /,
        *,
        deadline: float | None = None,
        priority: str | None = None,
        block: bool | None = None,
        timeout: float | None = None,
        version: str | int | None = None,
    ) -> str: ...

    @overload
    async def enqueue(self, uri: str, /, **data: object) -> str: ...

    async def enqueue(self, uri: str, inputs: object = None, /, **data: object) -> str:
        """Queue a request and return its uri at once; see `InputQueue.enqueue`."""
        options, values = split(inputs, data)
        with self._using_redis(options.timeout):
            converted_inputs = await run_async(self.db, converted(self.name, self._texts, inputs_of(values)))
            position = await run_async(self.db, enqueue(self.name, uri, converted_inputs, options, self._outlet))
        self._recent.remember(uri, position, options.deadline)
        return uri

    async def cancel(self, uri: str) -> bool:
        """Withdraw a request that is not being computed yet; see `InputQueue.cancel`."""
        check_query(uri)
        with self._using_redis():
            return await run_async(self.db, cancel(self.name, uri, self._recent.find(uri)))

    async def predict(
        self, request_data: object, timeout: float = 5, *, priority: str = NORMAL, version: str | int | None = None
    ) -> Result:
        """Queue a request, wait for its result and delete it from Redis; see `InputQueue.predict`.

        If the coroutine is cancelled, the request is withdrawn, in the background.
        """
        values = inputs_of(request_data)
        # Without a command nothing tells that Redis was reached.
        with self._using_redis(timeout) if self._texts.needs(values) else nullcontext():
            inputs = await run_async(self.db, converted(self.name, self._texts, values))
        fields = await self._dispatcher.request(self.name, inputs, timeout, priority, version)
        self._reached = True
        return read_result(fields)

    def predict_many(
        self,
        items: Iterable[object] | AsyncIterable[object],
        in_flight: int | None = None,
        timeout: float = TIMEOUT,
        *,
        priority: str = NORMAL,
        raise_errors: bool = False,
        version: str | int | None = None,
    ) -> AsyncIterator[Result]:
        """Yield the result of each item, in order; see `InputQueue.predict_many`."""
        check(in_flight, timeout, priority, version)
        return Batch(self._dispatcher, self.name, in_flight, timeout, priority, raise_errors, version).results(items)

    def stream(
        self,
        request_data: object,
        timeout: float = PIECE_TIMEOUT,
        *,
        uri: str | None = None,
        priority: str = NORMAL,
        version: str | int | None = None,
    ) -> AsyncPieces:
        """Queue a request, and iterate over the pieces of its answer: `async for piece in queue.stream(…)`.

        The request is queued when the iteration begins. See `InputQueue.stream`.
        """
        options = RequestOptions.waiting(timeout, priority, version)
        answer = PieceIteration(self.name, uuid.uuid4().hex if uri is None else uri)
        values = inputs_of(request_data)

        async def add() -> None:
            inputs = await run_async(self.db, converted(self.name, self._texts, values))
            queued = enqueue(self.name, answer.uri, inputs, options, self._outlet, reply_with=PIECES)
            answer.position = await run_async(self.db, queued)
            self._recent.remember(answer.uri, answer.position)

        return AsyncPieces(answer, self._pieces(answer, timeout, add))

    def resume(self, uri: str, after: str = BEGINNING, timeout: float = PIECE_TIMEOUT) -> AsyncPieces:
        """Iterate over the pieces of a request that `stream` has queued; see `InputQueue.resume`."""
        answer = PieceIteration(self.name, uri, after)
        answer.position = self._recent.find(uri)
        return AsyncPieces(answer, self._pieces(answer, timeout))

    def _pieces(
        self, answer: PieceIteration, timeout: float, begin: Callable[[], Awaitable[None]] | None = None
    ) -> AsyncIterator[PieceOrRestart]:
        return pieces_of(self.db, self._subscription, answer, timeout, partial(self._using_redis, timeout), begin)
