"""The asyncio client: the queues of `client.queues`, with the same arguments, as coroutines.

A few connections serve all coroutines of a queue, so thousands of requests may be in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from redis.exceptions import RedisError

from cluster_serving.client.cancel import Place, RecentEntries, cancel
from cluster_serving.client.convert import inputs_of, to_inputs
from cluster_serving.client.dispatcher import Dispatcher
from cluster_serving.client.enqueue import enqueueing
from cluster_serving.client.mailbox import RECHECK
from cluster_serving.client.queues import SCAN_COUNT, batched, results_of
from cluster_serving.client.request_options import RequestOptions, split
from cluster_serving.client.wakeups import Wakeups
from cluster_serving.protocol.connection import connect_async, result_timeout_async, translated
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import DEFAULT_JOB, NORMAL, result_key, result_pattern
from cluster_serving.protocol.payload_files import PayloadFolders
from cluster_serving.protocol.results import Fields, Result, decode_result
from cluster_serving.protocol.scripts import run_async


class _AsyncQueue:
    def __init__(
        self,
        host: str | None = None,
        port: int | str | None = None,
        name: str = DEFAULT_JOB,
        *,
        url: str | None = None,
        **redis_options: Any,
    ) -> None:
        self.name = name
        self.db = connect_async(host or "localhost", port or 6379, url, name, **redis_options)
        self._wakeups = Wakeups(self.db)
        self._exchange = Dispatcher(self.db, name)
        self._recent = RecentEntries()
        self._folders = PayloadFolders()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, once the requests of cancelled coroutines are withdrawn."""
        await self._wakeups.close()
        await self._exchange.close()

    async def _fetch(self, uri: str, delete: bool) -> Fields | None:
        key = result_key(self.name, uri).encode("utf8", "surrogateescape")
        fields: Fields = await self.db.hgetall(key)  # type: ignore[arg-type,misc]
        # Only when it has arrived: a lost reply must not lose the result. Nor must a failure to delete: it expires.
        if fields and delete:
            with contextlib.suppress(RedisError):
                await self.db.delete(key)
        return fields or None


class AsyncOutputQueue(_AsyncQueue):
    """Reads the results of one job; see `client.queues.OutputQueue` for arguments and errors."""

    async def query(self, uri: str, delete: bool = False, timeout: float | None = None) -> Result | None:
        """Result of a request; see `OutputQueue.query`."""
        with translated(self.db):
            fields = await self._fetch(uri, delete)
            if fields is None and timeout is not None:
                async with self._wakeups.watch(result_key(self.name, uri)) as event:
                    fields = await _wait(event, lambda: self._fetch(uri, delete), timeout)
        if fields is None:
            if timeout is None:
                return None
            raise await result_timeout_async(self.db, self.name, timeout, uri)
        return decode_result(fields)

    async def query_and_delete(self, uri: str, timeout: float | None = None) -> Result | None:
        """As `query`, and delete the result from Redis."""
        return await self.query(uri, delete=True, timeout=timeout)

    async def dequeue(self) -> dict[str, Result | ServingError]:
        """Take all results that are there; see `OutputQueue.dequeue`."""
        found: dict[bytes, Fields] = {}
        with translated(self.db):
            async for key in self.db.scan_iter(match=result_pattern(self.name), count=SCAN_COUNT, _type="HASH"):
                if fields := await self.db.hgetall(key):  # type: ignore[misc]
                    found[key] = fields
        # As in the synchronous one: only when all have arrived.
        with contextlib.suppress(RedisError):
            for chunk in batched(found, SCAN_COUNT):
                await self.db.delete(*chunk)
        return results_of(self.name, found)


class AsyncInputQueue(_AsyncQueue):
    """Queues requests for one job; see `client.queues.InputQueue` for arguments and errors."""

    async def enqueue(self, uri: str, **data: object) -> str:
        """Queue a request and return at once; see `InputQueue.enqueue`."""
        options, inputs = split(data)
        self._recent.remember(uri, await self._add(uri, inputs, options))
        return uri

    async def cancel(self, uri: str) -> bool:
        """Withdraw a request that is not being computed yet; see `InputQueue.cancel`."""
        with translated(self.db):
            return await run_async(self.db, cancel(self.name, uri, self._recent.find(uri)))

    async def predict(self, request_data: object, timeout: float = 5, *, priority: str = NORMAL) -> Result:
        """Queue a request, wait for its result and delete it from Redis; see `InputQueue.predict`.

        If the coroutine is cancelled, so is the request, in the background.
        """
        fields = await self._exchange.request(self.name, to_inputs(inputs_of(request_data)), timeout, priority)
        return decode_result(fields)

    async def _add(self, uri: str, data: Mapping[str, object], options: RequestOptions) -> Place:
        with translated(self.db):
            return await run_async(self.db, enqueueing(self.name, uri, to_inputs(data), options, self._folders))


def _cancellations() -> int:
    """How often the current task has been told to cancel."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


async def _wait(event: asyncio.Event, fetch: Callable[[], Awaitable[Fields | None]], timeout: float) -> Fields | None:
    deadline = time.monotonic() + timeout
    cancellations = _cancellations()
    while (fields := await fetch()) is None and (remaining := deadline - time.monotonic()) > 0:
        if _cancellations() > cancellations:
            # `asyncio.wait_for`, which redis-py uses, loses a cancellation that comes with its result.
            raise asyncio.CancelledError
        with contextlib.suppress(asyncio.TimeoutError):
            async with asyncio.timeout(min(remaining, RECHECK)):
                await event.wait()
        event.clear()
    return fields
