"""Other slots of a generation: requests of one that has died are taken over by the others at once."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import redis

from cluster_serving.protocol.keys import GROUP

HEARTBEAT_S = 0.4
"""Seconds between two signs of life of a slot that has others beside it."""

_DEAD_MS = 1500
_LOOK_S = 0.5
_CLAIM_COUNT = 16

log = logging.getLogger(__name__)


class Peers:
    """Watch of one slot over the others.

    A slot is dead if two looks in a row find it silent for longer than three heartbeats. One look is not enough: while
    Redis itself stands still, all are silent. Where this slot has not looked for a while, it starts anew.

    Args:
        client: Connection to the job's Redis.
        streams: Streams of the job.
        consumer: Consumer of this slot.
        prefix: What the consumers of all slots of the generation begin with.
        clock: Monotonic clock, in seconds.
    """

    def __init__(
        self,
        client: redis.Redis,
        streams: Iterable[str],
        consumer: str,
        prefix: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self._streams = list(streams)
        self._consumer = consumer
        self._prefix = prefix
        self._clock = clock
        self._looked = self._due = 0.0
        self._silent: set[str] = set()

    def take_over(self) -> bool:
        """Look at the others if it is time, and claim some requests of those that are dead; return True for any."""
        now = self._clock()
        if now < self._due:
            return False
        earlier = self._silent if now - self._looked < 2 * _LOOK_S + HEARTBEAT_S else set()
        self._looked, self._due = now, now + _LOOK_S
        pending = self._pending_of_silent()
        self._silent = set(pending)
        claimed = [
            entry for name in self._silent & earlier for stream in pending[name] for entry in self._claim(stream, name)
        ]
        if claimed:
            # Several slots share what a dead one has left; there may be more.
            self._due = now
        return bool(claimed)

    def _pending_of_silent(self) -> dict[str, list[str]]:
        """Return the streams of which silent slots hold requests, by consumer."""
        with self._client.pipeline(transaction=False) as pipeline:
            for stream in self._streams:
                pipeline.xinfo_consumers(stream, GROUP)
            replies = pipeline.execute()
        found: dict[str, list[str]] = {}
        for stream, consumers in zip(self._streams, replies, strict=True):
            for consumer in consumers:
                name = consumer["name"].decode()
                is_peer = name.startswith(self._prefix) and name != self._consumer
                if is_peer and consumer["pending"] and consumer["idle"] >= _DEAD_MS:
                    found.setdefault(name, []).append(stream)
        return found

    def _claim(self, stream: str, name: str) -> list[bytes]:
        pending = self._client.xpending_range(stream, GROUP, "-", "+", _CLAIM_COUNT, name)
        ids = [item["message_id"] for item in pending]
        if not ids:
            return []
        taken: list[bytes] = self._client.xclaim(stream, GROUP, self._consumer, _DEAD_MS, ids, justid=True)
        if taken:
            log.warning("stream %s: took over %d requests of the slot %s, which is silent", stream, len(taken), name)
        return taken
