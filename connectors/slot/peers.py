"""Other slots of a generation: requests of one that has died are taken over by the others at once."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import redis

from cluster_serving.protocol.keys import GROUP

HEARTBEAT_S = 0.15
"""Seconds between two signs of life of a slot that has others beside it."""

_LOOK_S, _LOOK_AGAIN_S = 0.1, 0.05
_FEW = 10
_SHORTEST_S, _LONGEST_S = 3 * HEARTBEAT_S, 1.5
_KEPT_PER_S = 0.97
_CLAIM_COUNT = 16

log = logging.getLogger(__name__)


class SilenceLimit:
    """Seconds of silence after which a slot counts as dead: the later slots have been of late, the more.

    Where all are on time, the limit is three heartbeats. A delay counts less with each second since. A slot that comes
    back from a fault is late, too: it loads its model, which may keep it from giving signs of life.
    """

    def __init__(self) -> None:
        self._delay = self._noted = 0.0

    def note(self, delay: float, now: float) -> None:
        """Note by how many seconds a slot was late."""
        self._delay = max(min(delay, _LONGEST_S), self._delay * _KEPT_PER_S ** (now - self._noted))
        self._noted = now

    @property
    def seconds(self) -> float:
        """The limit."""
        return min(_LONGEST_S, max(_SHORTEST_S, HEARTBEAT_S + 3 * self._delay))


class Peers:
    """Watch of one slot over the others.

    A slot is dead if two looks in a row find it silent for longer than the limit. One look is not enough: while Redis
    itself stands still, all are silent. Where this slot looks too late, it starts anew.

    Args:
        client: Connection to the job's Redis.
        streams: Streams of the job; in the first one, the slots give their signs of life.
        consumer: Consumer of this slot.
        prefix: What the consumers of all slots of the generation begin with.
        clock: Monotonic clock, in seconds.
    """

    heartbeat_s = HEARTBEAT_S

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
        self._due: float | None = None
        self._limit = SilenceLimit()
        # Seconds of silence of each of the others, at the last look.
        self._idle: dict[str, float] = {}
        self._silent: set[str] = set()

    def take_over(self) -> set[str]:
        """Look at the others if it is time, and claim some requests of those that are dead; return their streams."""
        now = self._clock()
        late = 0.0 if self._due is None else now - self._due
        if late < 0:
            return set()
        self._look(late, now)
        limit = self._limit.seconds
        pending = self._pending_of([name for name, idle in self._idle.items() if idle >= limit])
        earlier = self._silent if late < _LOOK_S + HEARTBEAT_S else set()
        self._silent = {name for name, _ in pending}
        claimed = {
            stream for (name, stream), found in pending.items() if name in earlier and self._claim(stream, name, found)
        }
        # Several slots share what a dead one has left. Where slots are many, the looks of all come often enough.
        self._due = now + (0 if claimed else _LOOK_AGAIN_S if pending else _LOOK_S * max(1, len(self._idle) / _FEW))
        return claimed

    def _look(self, late: float, now: float) -> None:
        """Note how long each of the others has been silent, and how late this slot and those that came back were."""
        earlier, self._idle = self._idle, {}
        for consumer in self._client.xinfo_consumers(self._streams[0], GROUP):
            name = consumer["name"].decode()
            if name.startswith(self._prefix) and name != self._consumer:
                self._idle[name] = consumer["idle"] / 1000
        came_back = [idle for name, idle in earlier.items() if idle > self._idle.get(name, idle)]
        for delay in (late, *(idle - HEARTBEAT_S for idle in came_back)):
            self._limit.note(delay, now)

    def _pending_of(self, names: Sequence[str]) -> dict[tuple[str, str], list[Any]]:
        """Return some requests that slots hold, by slot and stream."""
        with self._client.pipeline(transaction=False) as pipeline:
            places = [(name, stream) for name in names for stream in self._streams]
            for name, stream in places:
                pipeline.xpending_range(stream, GROUP, "-", "+", _CLAIM_COUNT, name)
            return {place: found for place, found in zip(places, pipeline.execute(), strict=True) if found}

    def _claim(self, stream: str, name: str, pending: Sequence[Any]) -> list[bytes]:
        longest = 1000 * _LONGEST_S
        ids = [
            item["message_id"]
            for item in pending
            # A request that was taken over may keep each slot that computes it from giving signs of life.
            if item["times_delivered"] == 1 or item["time_since_delivered"] >= longest
        ]
        if not ids:
            return []
        idle_ms = round(1000 * self._limit.seconds)
        taken: list[bytes] = self._client.xclaim(stream, GROUP, self._consumer, idle_ms, ids, justid=True)
        if taken:
            log.warning("stream %s: took over %d requests of the slot %s, which is silent", stream, len(taken), name)
        return taken
