"""The asyncio client: the queues of `client.queues`, with the same arguments, as coroutines.

One subscription serves all waiting coroutines of a queue, so thousands of requests may be in flight on two connections.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

import redis.asyncio
from redis.exceptions import RedisError, TimeoutError

from cluster_serving.client.connection import connect_async, translated
from cluster_serving.client.convert import to_inputs
from cluster_serving.client.errors import ResultTimeout, ServingError
from cluster_serving.client.mailbox import RECHECK, new_channel
from cluster_serving.client.protocol import (
    DEFAULT_JOB,
    Result,
    decode_result,
    request_fields,
    result_key,
    result_pattern,
    uri_of,
)
from cluster_serving.client.queues import inputs_of, result_or_error
from cluster_serving.client.request_options import RequestOptions, split

Fields = dict[bytes, bytes]

_RECONNECT_PAUSE = 0.1


class _Wakeups:
    """Receives the announcements of results and wakes whoever waits for them."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._waiting: dict[bytes, set[asyncio.Event]] = {}
        self._confirmed: dict[bytes, asyncio.Event] = {}
        self._listener: asyncio.Task[None] | None = None
        self._pubsub: redis.asyncio.client.PubSub | None = None
        # Two coroutines that subscribe at once would open a connection each, and one of them would be lost.
        self._commands = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def watch(self, channel: str, uri: str, once: bool = False) -> AsyncIterator[asyncio.Event]:
        """Subscribe to a channel; the event is set whenever the uri is announced, or may have been missed.

        Args:
            channel: Channel to listen on.
            uri: Request to hear of.
            once: Leave the channel when nobody waits for this uri any more.
        """
        event = asyncio.Event()
        key = uri.encode(errors="surrogateescape")
        self._waiting.setdefault(key, set()).add(event)
        try:
            await self._subscribe(channel)
            yield event
        finally:
            self._waiting[key].discard(event)
            if not self._waiting[key]:
                del self._waiting[key]
                if once and channel.encode() in self._confirmed and self._pubsub is not None:
                    del self._confirmed[channel.encode()]
                    # A result may be on its way out; it matters more than an idle subscription.
                    with contextlib.suppress(RedisError, OSError):
                        async with self._commands:
                            await self._pubsub.unsubscribe(channel)

    async def close(self) -> None:
        """Stop listening and give the connection back."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listener
        pubsub, self._pubsub = self._pubsub, None
        self._confirmed.clear()
        if pubsub is not None:
            await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def _subscribe(self, channel: str) -> None:
        key = channel.encode()
        confirmed = self._confirmed.get(key)
        if confirmed is None:
            confirmed = self._confirmed[key] = asyncio.Event()
            try:
                async with self._commands:
                    pubsub = self._pubsub or self._client.pubsub()
                    await pubsub.subscribe(channel)
                    # Only now: the listener cannot read from one that has never been connected.
                    self._pubsub = pubsub
            except BaseException:
                # Or everyone after this one would wait for a confirmation that never comes.
                self._confirmed.pop(key, None)
                raise
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(self._listen())
        try:
            await asyncio.wait_for(confirmed.wait(), 5)
        except builtins.TimeoutError:
            raise TimeoutError("Redis did not confirm a subscription within 5 s") from None

    async def _listen(self) -> None:
        while True:
            try:
                if self._pubsub is None:
                    if not self._confirmed:
                        await asyncio.sleep(_RECONNECT_PAUSE)
                        continue
                    async with self._commands:
                        pubsub = self._client.pubsub()
                        await pubsub.subscribe(*self._confirmed)
                        self._pubsub = pubsub
                    self._wake_all()
                message = await self._pubsub.get_message(timeout=RECHECK)
            except (RedisError, OSError):
                if self._pubsub is not None:
                    with contextlib.suppress(RedisError, OSError):
                        await self._pubsub.aclose()  # type: ignore[no-untyped-call]
                self._pubsub = None
                await asyncio.sleep(_RECONNECT_PAUSE)
                continue
            if message is None:
                continue
            if message["type"] == "subscribe":
                if event := self._confirmed.get(message["channel"]):
                    event.set()
            elif message["type"] == "message":
                for waiter in self._waiting.get(message["data"], ()):
                    waiter.set()

    def _wake_all(self) -> None:
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.set()


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
        self.db = connect_async(host or "localhost", port or 6379, url, **redis_options)
        self._wakeups = _Wakeups(self.db)
        self._reply_channel = new_channel(name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._wakeups.close()
        await self.db.aclose()

    async def _fetch(self, uri: str, delete: bool) -> Fields | None:
        key = result_key(self.name, uri)
        fields: Fields = await self.db.hgetall(key)  # type: ignore[misc]
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
                async with self._wakeups.watch(result_key(self.name, uri), uri, once=True) as event:
                    fields = await _wait(event, lambda: self._fetch(uri, delete), timeout, look_first=True)
        if fields is None:
            if timeout is None:
                return None
            raise ResultTimeout(f"no result for {uri!r} of job {self.name!r} within {timeout} s")
        return decode_result(fields)

    async def query_and_delete(self, uri: str, timeout: float | None = None) -> Result | None:
        """As `query`, and delete the result from Redis."""
        return await self.query(uri, delete=True, timeout=timeout)

    async def dequeue(self) -> dict[str, Result | ServingError]:
        """Take all results that are there; see `OutputQueue.dequeue`."""
        results: dict[str, Result | ServingError] = {}
        with translated(self.db):
            async for key in self.db.scan_iter(match=result_pattern(self.name), count=500, _type="HASH"):
                uri = uri_of(self.name, key.decode("utf8", "surrogateescape"))
                if fields := await self._fetch(uri, delete=True):
                    results[uri] = result_or_error(fields)
        return results


class AsyncInputQueue(_AsyncQueue):
    """Queues requests for one job; see `client.queues.InputQueue` for arguments and errors."""

    async def enqueue(self, uri: str, **data: object) -> str:
        """Queue a request and return at once; see `InputQueue.enqueue`."""
        options, inputs = split(data)
        return await self._add(uri, inputs, options)

    async def predict(self, request_data: object, timeout: float = 5) -> Result:
        """Queue a request, wait for its result and delete it from Redis; see `InputQueue.predict`."""
        options = RequestOptions.waiting(timeout)
        uri = uuid.uuid4().hex
        with translated(self.db):
            async with self._wakeups.watch(self._reply_channel, uri) as event:
                await self._add(uri, inputs_of(request_data), options, self._reply_channel)
                fields = await _wait(event, lambda: self._fetch(uri, True), timeout)
        if fields is None:
            raise ResultTimeout(f"no result from job {self.name!r} within {timeout} s")
        return decode_result(fields)

    async def _add(self, uri: str, data: Mapping[str, object], options: RequestOptions, reply_to: str = "") -> str:
        fields = request_fields(uri, to_inputs(data), reply_to, options.deadline_ms)
        with translated(self.db):
            async with self.db.pipeline(transaction=not reply_to) as pipeline:
                if not reply_to:
                    pipeline.delete(result_key(self.name, uri))
                pipeline.xadd(self.name, fields)  # type: ignore[arg-type]
                await pipeline.execute()
        return uri


async def _wait(
    event: asyncio.Event, fetch: Callable[[], Awaitable[Fields | None]], timeout: float, look_first: bool = False
) -> Fields | None:
    deadline = time.monotonic() + timeout
    if look_first and (fields := await fetch()) is not None:
        return fields
    while (remaining := deadline - time.monotonic()) > 0:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(event.wait(), min(remaining, RECHECK))
        event.clear()
        if (fields := await fetch()) is not None:
            return fields
    return await fetch()
