"""One subscription for all the coroutines of a queue that query results; `client.mailbox` is the one for threads."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
from collections.abc import AsyncIterator

import redis.asyncio
from redis.exceptions import RedisError, TimeoutError

from cluster_serving.client.mailbox import RECHECK, RECONNECT_PAUSE


class Wakeups:
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
    async def watch(self, channel: str) -> AsyncIterator[asyncio.Event]:
        """Subscribe to a channel; the event is set whenever a message comes, or may have been missed."""
        event = asyncio.Event()
        key = channel.encode(errors="surrogateescape")
        self._waiting.setdefault(key, set()).add(event)
        try:
            await self._subscribe(key)
            yield event
        finally:
            self._waiting[key].discard(event)
            if not self._waiting[key]:
                del self._waiting[key]
                if key in self._confirmed and self._pubsub is not None:
                    del self._confirmed[key]
                    # A result may be on its way out; it matters more than an idle subscription.
                    with contextlib.suppress(RedisError, OSError):
                        async with self._commands:
                            await self._pubsub.unsubscribe(key)

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

    async def _subscribe(self, channel: bytes) -> None:
        confirmed = self._confirmed.get(channel)
        if confirmed is None:
            confirmed = self._confirmed[channel] = asyncio.Event()
            try:
                async with self._commands:
                    if self._pubsub is None:
                        # Only then: the listener cannot read from one that has never been connected.
                        self._pubsub = await self._connected()
                    else:
                        await self._pubsub.subscribe(channel)
            except BaseException:
                # Or everyone after this one would wait for a confirmation that never comes.
                self._confirmed.pop(channel, None)
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
                        await asyncio.sleep(RECONNECT_PAUSE)
                        continue
                    async with self._commands:
                        # Who made the first subscription may just have finished.
                        if self._pubsub is None:
                            self._pubsub = await self._connected()
                message = await self._pubsub.get_message(timeout=RECHECK)
            except (RedisError, OSError):
                if self._pubsub is not None:
                    with contextlib.suppress(RedisError, OSError):
                        await self._pubsub.aclose()  # type: ignore[no-untyped-call]
                self._pubsub = None
                await asyncio.sleep(RECONNECT_PAUSE)
                continue
            if message is None:
                continue
            if message["type"] == "subscribe":
                if event := self._confirmed.get(message["channel"]):
                    event.set()
            elif message["type"] == "message":
                for waiter in self._waiting.get(message["channel"], ()):
                    waiter.set()

    async def _connected(self) -> redis.asyncio.client.PubSub:
        """Subscribe to all channels; what was announced before may have been missed."""
        pubsub = self._client.pubsub()
        await pubsub.subscribe(*self._confirmed)
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.set()
        return pubsub
