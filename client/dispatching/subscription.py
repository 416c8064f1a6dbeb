"""The subscription of an event loop to the channels on which results are announced (`announcements`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Optional, TypeVar

import redis.asyncio
from redis.exceptions import ConnectionError, RedisError

from cluster_serving.client import announcements
from cluster_serving.client.announcements import RECONNECT_PAUSE
from cluster_serving.protocol.compat import timeout as time_limit
from cluster_serving.protocol.errors import RedisUnavailable
from cluster_serving.protocol.keys import to_bytes
from cluster_serving.protocol.redis.connection import translated

T = TypeVar("T")

Handler = Callable[[Optional[bytes]], None]
"""Gets each message of a channel; None if messages may have been lost."""


async def _within(seconds: float, confirmed: asyncio.Event) -> None:
    async with time_limit(seconds):
        await confirmed.wait()


class AsyncSubscription:
    """One subscription connection for all coroutines of an event loop; connects again after a lost connection."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._handlers: dict[bytes, set[Handler]] = {}
        self._confirmed: dict[bytes, asyncio.Event] = {}
        self._pubsub: Any = None
        self._reader: asyncio.Task[None] | None = None
        # redis-py's commands of one subscription must not overlap while it connects.
        self._commands = asyncio.Lock()

    async def subscribe(self, channel: str, handle: Handler) -> None:
        """Subscribe to a channel, unless it is subscribed, and wait until Redis has confirmed the subscription.

        Raises:
            RedisUnavailable: If Redis cannot be reached, or does not confirm.
        """
        key = to_bytes(channel)
        self._handlers.setdefault(key, set()).add(handle)
        confirmed = self._confirmed.get(key)
        if confirmed is None:
            confirmed = self._confirmed[key] = asyncio.Event()
            try:
                async with self._commands:
                    if self._pubsub is not None:
                        # The reader notices a lost connection, and then subscribes to all channels.
                        with suppress(Exception):
                            async with time_limit(announcements.CONFIRM_TIMEOUT):
                                await self._pubsub.subscribe(key)
            except BaseException:
                # No confirmation may come; other subscribers try again.
                self._confirmed.pop(key, None)
                confirmed.set()
                raise
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        if confirmed.is_set():
            return
        try:
            await _within(announcements.CONFIRM_TIMEOUT, confirmed)
        except asyncio.TimeoutError:
            # A Redis that refuses every connection says why.
            with translated(self._client):
                await self._client.ping()
            try:
                # The ping may have waited out a lost connection.
                await _within(announcements.SUBSCRIBE_TIMEOUT, confirmed)
            except asyncio.TimeoutError:
                raise RedisUnavailable("Redis does not confirm a subscription") from None
        if key in self._handlers and self._confirmed.get(key) is not confirmed:
            # The subscriber that sent the command was cancelled.
            await self.subscribe(channel, handle)

    def is_confirmed(self, channels: Iterable[bytes]) -> bool:
        """Return True if Redis has confirmed the subscriptions to all these channels, and none is lost."""
        if self._reader is None or self._reader.done():
            return False
        for channel in channels:
            confirmed = self._confirmed.get(channel)
            if confirmed is None or not confirmed.is_set():
                return False
        return True

    async def unsubscribe(self, channel: str, handle: Handler) -> None:
        """End what `subscribe` began, and unsubscribe from a channel that has no other handler."""
        key = to_bytes(channel)
        handlers = self._handlers.get(key, set())
        handlers.discard(handle)
        if handlers:
            return
        self._handlers.pop(key, None)
        if self._confirmed.pop(key, None) is not None and self._pubsub is not None:
            # The caller may hold a result or a cancellation, which matters more than an idle subscription.
            with suppress(Exception):
                async with self._commands:
                    if self._pubsub is not None and key not in self._confirmed:
                        await self._pubsub.unsubscribe(key)

    @asynccontextmanager
    async def announcements(self, channel: str) -> AsyncIterator[asyncio.Event]:
        """Subscribe to a channel within a block; the event is set by messages, and when messages may have been lost."""
        event = asyncio.Event()

        def handle(message: bytes | None) -> None:
            event.set()

        try:
            await self.subscribe(channel, handle)
            yield event
        finally:
            await self.unsubscribe(channel, handle)

    async def close(self) -> None:
        """Close the connection; a later `subscribe` opens it again."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
        await self._disconnect()
        self._handlers.clear()
        # Those who still wait for a confirmation have nothing to wait for.
        for confirmed in self._confirmed.values():
            confirmed.set()
        self._confirmed.clear()

    async def _read(self) -> None:
        """Deliver messages as long as there is a channel or a connection."""
        # An error while a connection is closed may take the place of a cancellation.
        own = asyncio.current_task()
        while self._reader is own and (self._confirmed or self._pubsub is not None):
            try:
                message = await self._next_message()
            except Exception:
                # Not only errors of Redis: a subscriber may have used the lost connection at the same time.
                await self._disconnect()
                await asyncio.sleep(RECONNECT_PAUSE)
                continue
            if message is None:
                for channel in self._confirmed:
                    self._deliver(channel, None)
            elif message["type"] == "message":
                self._deliver(message["channel"], message["data"])
            elif message["type"] == "subscribe" and (confirmed := self._confirmed.get(message["channel"])):
                confirmed.set()
                # Messages before the confirmation are lost.
                self._deliver(message["channel"], None)

    async def _next_message(self) -> Any:
        """Return the next message, after connecting if necessary; None if none came for some time."""
        if self._pubsub is None:
            async with self._commands:
                self._pubsub = self._client.pubsub()
                await self._pubsub.subscribe(*self._confirmed)
        end = time.monotonic() + announcements.RECHECK
        message: Any = None
        unconfirmed: set[bytes] = set()
        was_silent = False
        while message is None and time.monotonic() < end:
            message = await self._pubsub.get_message(timeout=announcements.CONFIRM_TIMEOUT)
            if message is None:
                # redis-py asks a silent connection for a sign of life whenever it reads.
                silent = self._pubsub.connection.is_silent
                if silent and was_silent:
                    raise ConnectionError("the subscription is dead")
                was_silent = silent
                still = {channel for channel, confirmed in self._confirmed.items() if not confirmed.is_set()}
                if still & unconfirmed:
                    raise ConnectionError("Redis did not confirm a subscription")
                unconfirmed = still
        return message

    def _deliver(self, channel: bytes, message: bytes | None) -> None:
        for handle in tuple(self._handlers.get(channel, ())):
            handle(message)

    async def _disconnect(self) -> None:
        # From now on subscribers wait for a new connection.
        pubsub, self._pubsub = self._pubsub, None
        for confirmed in self._confirmed.values():
            confirmed.clear()
        if pubsub is not None:
            # A command that is being sent could connect again after the connection has gone back to the pool.
            async with self._commands:
                with suppress(RedisError, OSError):
                    await pubsub.aclose()


async def wait_for(event: asyncio.Event, fetch: Callable[[], Awaitable[T | None]], timeout: float) -> T | None:
    """Wait until `fetch` returns a result; call `fetch` at once, and whenever the event is set.

    Args:
        event: Event of `AsyncSubscription.announcements`.
        fetch: Looks for the result; returns something false while there is none.
        timeout: Seconds to wait; the result of `fetch` is then returned as it is.
    """
    deadline = time.monotonic() + timeout
    while True:
        event.clear()
        result = await fetch()
        remaining = deadline - time.monotonic()
        if result or remaining <= 0:
            return result
        with suppress(asyncio.TimeoutError):
            async with time_limit(min(remaining, announcements.RECHECK)):
                await event.wait()
