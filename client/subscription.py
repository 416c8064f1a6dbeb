"""Subscriptions to the channels on which results are announced, so that clients need not poll.

The job publishes the uris of answered requests. The channel is the one that a request names in `reply_to`, else the one
named like the result key. If the request asks for it, the message holds the result itself. Results are also in hashes,
so a lost message costs time and never a result.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Optional, TypeVar

import hiredis
import redis
import redis.asyncio
from redis.exceptions import ConnectionError, RedisError, TimeoutError

from cluster_serving.protocol.compat import timeout as time_limit
from cluster_serving.protocol.errors import RedisUnavailable
from cluster_serving.protocol.keys import to_bytes
from cluster_serving.protocol.redis.connection import translated
from cluster_serving.protocol.results import Fields

T = TypeVar("T")

RECHECK = 5.0
"""Seconds without a message after which a client looks for the result."""

RECONNECT_PAUSE = 0.1
"""Seconds between attempts to connect."""

_SUBSCRIBE_TIMEOUT = 5.0
_CONFIRM_TIMEOUT = 1.0

_PROCESS = uuid.uuid4().hex[:16]

Handler = Callable[[Optional[bytes]], None]
"""Gets each message of a channel; None if messages may have been lost."""


def new_channel(job: str) -> str:
    """Return the name of a reply channel that no other client has; those of a process have the same start.

    `protocol.entry.Entry.client` reads the start.
    """
    return f"cluster-serving_{job}|reply|{_PROCESS}{os.getpid():x}.{uuid.uuid4().hex}"


def uris_in(message: object) -> list[bytes]:
    """Return the uris that a message may announce: each of its lines, and the whole, since a uri may hold newlines."""
    if not isinstance(message, bytes):
        return []
    lines = message.split(b"\n")
    return lines if len(lines) == 1 else [*lines, message]


def replies_in(message: object) -> dict[bytes, Fields]:
    """Return the uris in a message, with the fields of their results.

    The answers of one batch are RESP arrays in a row: the uri, then names and values in turn. An array without fields
    stands for a result that is too large for a message. Cancelled requests and requests that an older job has answered
    are announced in lines.
    """
    if not isinstance(message, bytes) or not message.startswith(b"*"):
        return {uri: {} for uri in uris_in(message)}
    reader = hiredis.Reader()
    reader.feed(message)
    replies: dict[bytes, Fields] = {}
    try:
        while (answer := reader.gets()) is not False:
            uri, *fields = answer
            if len(fields) % 2:
                raise ValueError("a name without a value")
            replies[uri] = dict(zip(fields[::2], fields[1::2]))
    except (ValueError, TypeError, hiredis.HiredisError):
        replies = {}
    # The message is no array but a uri that begins like one.
    return replies or {uri: {} for uri in uris_in(message)}


class _PubSub(redis.client.PubSub):
    """A subscription that can be sent while its connection is broken.

    Some releases of redis-py then connect again, subscribe to earlier channels within the same command, and wait
    forever for the lock that this command holds.
    """

    def __init__(self, pool: redis.ConnectionPool) -> None:
        super().__init__(pool)
        self._lock = threading.RLock()  # type: ignore[assignment]


class Subscription:
    """One subscription connection, for one thread at a time."""

    def __init__(self, client: redis.Redis, job: str) -> None:
        self._client = client
        self._pubsub: redis.client.PubSub | None = None
        self._subscribed: set[str] = set()
        self.reply_channel = new_channel(job)

    def subscribe(self, channel: str) -> bool:
        """Subscribe to a channel and wait until Redis has confirmed the subscription; return False if it was before.

        After a pause, the connection is checked before.

        Raises:
            redis.RedisError: If Redis cannot be used, or does not confirm it in time.
        """
        self._check()
        if channel in self._subscribed:
            return False
        if self._pubsub is None:
            self._pubsub = _PubSub(self._client.connection_pool)
        self._pubsub.subscribe(channel)  # type: ignore[no-untyped-call]
        name = to_bytes(channel)
        if not self._read_until(lambda message: message["type"] == "subscribe" and message["channel"] == name):
            self.close()
            raise TimeoutError(f"Redis did not confirm a subscription within {_SUBSCRIBE_TIMEOUT:g} s")
        self._subscribed.add(channel)
        return True

    def unsubscribe(self, channel: str) -> None:
        """Unsubscribe from a channel."""
        if channel in self._subscribed and self._pubsub is not None:
            self._subscribed.discard(channel)
            self._pubsub.unsubscribe(channel)  # type: ignore[no-untyped-call]

    def wait(self, channel: str, uri: str, fetch: Callable[[Fields], T | None], timeout: float) -> T | None:
        """Wait until `fetch` returns a result; call `fetch` whenever the uri is announced.

        Args:
            channel: A subscribed channel, which is subscribed again after a lost connection.
            uri: Uri of the request.
            fetch: Gets the fields of the result that the announcement holds, empty if it holds none. Then it looks for
                the result, and returns None while there is none. The first call comes after a wait, so the caller must
                look once after subscribing, or queue the request after subscribing.
            timeout: Seconds to wait.
        """
        deadline = time.monotonic() + timeout
        connection_lost = False
        wanted = to_bytes(uri)
        announced: dict[bytes, Fields] = {}

        def concerns(message: dict[str, object]) -> bool:
            if message["type"] == "subscribe":
                # redis-py has subscribed again; messages may have been lost before.
                return True
            announced.update(replies_in(message["data"]))
            return wanted in announced

        while (remaining := deadline - time.monotonic()) > 0:
            announced.clear()
            try:
                # Messages may have been lost before a subscription, and a check skips them.
                may_miss = self._check() or self.subscribe(channel)
                if not connection_lost and not may_miss:
                    self._read_until(concerns, min(remaining, RECHECK))
                connection_lost = False
            except (ConnectionError, TimeoutError):
                connection_lost = True
                self.close()
                time.sleep(min(RECONNECT_PAUSE, max(0.0, deadline - time.monotonic())))
                continue
            if (result := fetch(announced.get(wanted, {}))) is not None:
                return result
        return fetch({})

    def close(self) -> None:
        """Close the connection."""
        pubsub, self._pubsub = self._pubsub, None
        self._subscribed.clear()
        if pubsub is not None:
            pubsub.close()

    def _check(self) -> bool:
        """Close a connection that has been silent for some time and does not answer; return True if it was silent."""
        if self._pubsub is None or not getattr(self._pubsub.connection, "is_silent", False):
            return False
        if not self._subscribed:
            self.close()
            return True
        end = time.monotonic() + _CONFIRM_TIMEOUT
        try:
            # redis-py asks a silent connection for a sign of life whenever it reads.
            while getattr(self._pubsub.connection, "is_silent", False):
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the subscription is dead")
                self._pubsub.get_message(timeout=left)
        except RedisError:
            self.close()
        return True

    def _read_until(self, is_wanted: Callable[[dict[str, object]], bool], timeout: float = _SUBSCRIBE_TIMEOUT) -> bool:
        """Read messages until the wanted one, or until the timeout; return True if it has come."""
        pubsub = self._pubsub
        if pubsub is None:
            raise ConnectionError("not subscribed")
        deadline = time.monotonic() + timeout
        while (remaining := deadline - time.monotonic()) > 0:
            message = pubsub.get_message(timeout=remaining)
            if message is not None and is_wanted(message):
                return True
        return False


async def _soon(confirmed: asyncio.Event) -> None:
    async with time_limit(_SUBSCRIBE_TIMEOUT):
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
                            async with time_limit(_CONFIRM_TIMEOUT):
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
            await _soon(confirmed)
        except asyncio.TimeoutError:
            with translated(self._client):
                await self._client.ping()
            try:
                # The ping may have waited out a lost connection.
                await _soon(confirmed)
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
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
            self._reader = None
        await self._disconnect()
        self._handlers.clear()
        # Those who still wait for a confirmation have nothing to wait for.
        for confirmed in self._confirmed.values():
            confirmed.set()
        self._confirmed.clear()

    async def _read(self) -> None:
        """Deliver messages as long as there is a channel or a connection."""
        while self._confirmed or self._pubsub is not None:
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
        end = time.monotonic() + RECHECK
        message: Any = None
        unconfirmed: set[bytes] = set()
        was_silent = False
        while message is None and time.monotonic() < end:
            message = await self._pubsub.get_message(timeout=_CONFIRM_TIMEOUT)
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
            async with time_limit(min(remaining, RECHECK)):
                await event.wait()
