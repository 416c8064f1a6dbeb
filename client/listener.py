"""The subscription of a whole process to what jobs publish, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import redis.asyncio
from redis.exceptions import ConnectionError, RedisError

from cluster_serving.client.mailbox import RECHECK, RECONNECT_PAUSE
from cluster_serving.protocol.connection import translated
from cluster_serving.protocol.errors import RedisUnavailable

_SUBSCRIBE_TIMEOUT = 5.0


class Listener:
    """Listens from the first `subscribe` on, and subscribes again after a lost connection; used by one event loop.

    Args:
        db: Whose Redis it is.
        channels: To listen to.
        hear: Told each message.
        missed: Called when messages may have been lost: after each subscription, and now and then while none comes.
    """

    def __init__(
        self,
        db: redis.asyncio.Redis,
        channels: Sequence[str],
        hear: Callable[[object], None],
        missed: Callable[[], None],
    ) -> None:
        self._db = db
        self._channels = channels
        self._hear = hear
        self._missed = missed
        self._task: asyncio.Task[None] | None = None
        self._subscribed = asyncio.Event()

    async def subscribe(self) -> None:
        """Wait until it hears.

        Raises:
            RedisUnavailable: Redis cannot be reached, or does not confirm.
        """
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._listen())
        if self._subscribed.is_set():
            return
        try:
            async with asyncio.timeout(_SUBSCRIBE_TIMEOUT):
                await self._subscribed.wait()
        except TimeoutError:
            with translated(self._db):
                await self._db.ping()
            raise RedisUnavailable("Redis did not confirm a subscription") from None

    async def close(self) -> None:
        """Listen no longer; `subscribe` would begin again."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._subscribed.clear()

    async def _listen(self) -> None:
        while True:
            try:
                async with self._db.pubsub() as pubsub:
                    await pubsub.subscribe(*self._channels)
                    while True:
                        message = await pubsub.get_message(timeout=RECHECK)
                        if message is None:
                            if not self._subscribed.is_set():
                                raise ConnectionError("Redis did not confirm a subscription")
                            # Messages may be lost, results are not.
                            self._missed()
                        elif message["type"] == "message":
                            self._hear(message["data"])
                        else:
                            self._subscribed.set()
                            self._missed()
            except (RedisError, OSError):
                self._subscribed.clear()
                await asyncio.sleep(RECONNECT_PAUSE)
