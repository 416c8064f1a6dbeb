"""Reader of one job's Redis Streams, one for each priority, as one stable consumer of their group.

A request stays pending in the group until the sink has written its result, so a request that a crash interrupts is
found again. A consumer first reads its own pending entries, then claims those of silent consumers, then reads new ones.
A consumer falls silent after a rescale or with its host.
"""

import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import redis
from redis.exceptions import ResponseError

from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.protocol.encodings import with_serde
from cluster_serving.protocol.entry import Entry, parse_entry
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.keys import GROUP, PRIORITIES, JobKeys
from cluster_serving.protocol.redis.dedicated import DedicatedConnection
from cluster_serving.protocol.scripts import BACKLOG, CLAIM, HAND_OVER, HAND_OVER_ALL, Argument, Call, call, fields_of

WEIGHTS = {"high": 12, "normal": 3, "low": 1}
"""Requests of each priority among 16; a priority leaves its unused part to the next, so that none starves."""

T = TypeVar("T")

_Replies = list[tuple[bytes, list[tuple[bytes, Sequence[bytes] | None]]]]
"""Reply to a read: entries by stream."""

log = logging.getLogger(__name__)

_TOTAL_WEIGHT = sum(WEIGHTS.values())
_HEARTBEATS_PER_CLAIM = 10
_CLAIM_COUNT = 100
_RECOVERY_PAUSE = 0.002
# A read of the own pending entries behind this id finds no entry. Redis takes the very last id for ">".
AFTER_ALL = "18446744073709551615-0"
# Redis 7.0 says UNBLOCKED to a read that was waiting; 6.2 lets it wait to its end. XINFO says that there is no key.
GONE = re.compile("NOGROUP|UNBLOCKED|no such key")


class Watch(Protocol):
    """Watch of one slot over the others of its generation (`connectors.slot.peers`).

    Attributes:
        heartbeat_s: Seconds between two signs of life that the others expect of this slot.
    """

    heartbeat_s: float

    def take_over(self) -> set[str]:
        """Look at the others if it is time, and claim some requests of those that are dead; return their streams."""


MakeWatch = Callable[[redis.Redis, Iterable[str], str, str], Watch]
"""Makes it of a connection, the streams, the consumer of the slot, and what the consumers of all slots begin with."""


def drop(client: redis.Redis, stream: str, entry_id: bytes) -> None:
    """Remove an entry without an answer."""
    client.xack(stream, GROUP, entry_id)
    client.xdel(stream, entry_id)


class WeightedRoundRobin:
    """Smooth weighted round robin by `WEIGHTS`, which hold even if only one request is read at a time."""

    def __init__(self) -> None:
        self._credit = dict.fromkeys(WEIGHTS, 0)

    def divide(self, count: int) -> dict[str, int]:
        """Divide the next `count` requests among the priorities."""
        counts = dict.fromkeys(WEIGHTS, 0)
        for _ in range(count):
            for priority, weight in WEIGHTS.items():
                self._credit[priority] += weight
            chosen = max(self._credit, key=self._credit.__getitem__)
            self._credit[chosen] -= _TOTAL_WEIGHT
            counts[chosen] += 1
        return counts


class StreamReader:
    """One consumer of a job's streams.

    While at most one priority has requests waiting, a read is one command for all streams. Otherwise the streams are
    read one by one, by weighted round robin.

    Args:
        client: Connection used by this reader alone.
        job: `jobName`.
        consumer: Stable name, so that its pending entries are still its own after a restart.
        claim_idle_ms: Milliseconds of silence after which another consumer counts as dead.
        watch: Watch over the other slots, whose requests are taken over much earlier; None for no other slots.
        connection: Connection of a thread that reads for several. It calls `start_over` if entries may be pending, and
            `look_for_abandoned` if other consumers hold some. None for one of this reader's own.
    """

    def __init__(
        self,
        client: redis.Redis,
        job: str,
        consumer: str,
        claim_idle_ms: int,
        watch: Watch | None = None,
        connection: DedicatedConnection | None = None,
    ) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self._reading = connection or DedicatedConnection(client)
        self._job = job
        self._keys = JobKeys(job)
        self._streams = {self._keys.stream(priority): priority for priority in PRIORITIES}
        self._consumer = consumer
        self._claim_idle_ms = claim_idle_ms
        self._round_robin = WeightedRoundRobin()
        # Streams that probably have more requests waiting.
        self._busy: set[str] = set()
        # Streams that may have own pending entries → id behind which they may be.
        self._pending_after = dict.fromkeys(() if connection else self._streams, "0")
        self._recovered: tuple[str, bytes] | None = None
        self._claim_pause_s = math.inf if connection else claim_idle_ms / 4000
        self._next_claim = math.inf if connection else 0.0
        self._next_heartbeat = 0.0
        self._watch = watch
        self._heartbeat_s = claim_idle_ms / 1000 / _HEARTBEATS_PER_CLAIM
        if watch is not None:
            self._heartbeat_s = min(self._heartbeat_s, watch.heartbeat_s)

    def close(self) -> None:
        """Close the connection that is used for reading only."""
        self._reading.close()

    @property
    def recovering(self) -> bool:
        """True if own pending entries may be left from an earlier run; call `recover` until it is False."""
        return bool(self._pending_after)

    def start_over(self) -> None:
        """Look for own pending entries again; call it after every error of Redis, since its answer may be lost."""
        self._pending_after = dict.fromkeys(self._streams, "0")
        self._recovered = None

    def look_for_abandoned(self) -> None:
        """Look for entries of silent consumers with the next read."""
        self._next_claim = 0.0

    def recover(self, timeout: float) -> tuple[Entry, int] | None:
        """Read the next own pending entry, once the previous one is answered.

        Entries are read one at a time: if one kills the process, only its own delivery count grows. Return the entry
        and the number of its deliveries; None if there is no entry, or the previous one is still unanswered after
        `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while self._recovered is not None and self._deliveries(*self._recovered):
            if time.monotonic() >= deadline:
                return None
            time.sleep(_RECOVERY_PAUSE)
        self._recovered = None
        while self._pending_after:
            stream, after = next(iter(self._pending_after.items()))
            raw = self._read_one(stream, after, 1)
            if raw:
                self._pending_after[stream] = raw[-1][0].decode()
            else:
                del self._pending_after[stream]
            for entry in self._parse(stream, raw):
                self._recovered = stream, entry.id
                return entry, self._deliveries(stream, entry.id) or 1
        return None

    def is_pending(self, entry: Entry) -> bool:
        """Return True if any slot still has to answer an entry."""
        stream = self._keys.stream(entry.priority)
        return bool(self._guarded(lambda: self._client.xpending_range(stream, GROUP, entry.id, entry.id, 1)))

    def read(self, count: int, block_ms: int | None, longest_ms: int = 0) -> list[Entry]:
        """Read up to `count` new entries, those of higher priority first.

        Now and then it looks for entries of silent consumers. If it claims some, it returns no entries, and the reader
        is `recovering` again.

        Args:
            count: Most entries to return, at least 1. The first read that finds several priorities may return `count`
                entries of each.
            block_ms: Longest wait for new entries, in milliseconds; None does not wait.
            longest_ms: Milliseconds for which the read goes on in Redis if nothing comes within `block_ms`. While it
                `waits`, nothing but `read_on` may be called.
        """
        self.heartbeat()
        if time.monotonic() >= self._next_claim:
            self._next_claim = time.monotonic() + self._claim_pause_s
            if self._guarded(self._claim_abandoned):
                self.start_over()
                return []
        weighted = self._read_weighted(count) if len(self._busy) > 1 else []
        return weighted or self._read_all(count, block_ms, longest_ms)

    @property
    def waits(self) -> bool:
        """True while a read goes on in Redis; `read_on` ends it."""
        return self._reading.waits

    def read_on(self, block_ms: int) -> list[Entry]:
        """Return the entries of the read that `waits`; wait for them up to `block_ms`."""
        return self.found(self._guarded(lambda: self._reading.end(block_ms / 1000) or []))

    def hand_over(self, entries: Sequence[Entry], consumer: str) -> None:
        """Hand pending requests, whose computation has not begun, over to the slots that claim from a consumer."""
        streams = list(self._streams)
        arguments: list[Argument] = [GROUP, consumer]
        for entry in entries:
            arguments += [streams.index(self._keys.stream(entry.priority)) + 2, entry.id]
        call(self._client, Call(HAND_OVER, [self._keys.generations, *streams], arguments))

    def claim(self, consumer: str, count: int, idle_ms: int = 0) -> list[Entry]:
        """Claim up to `count` requests that were handed over to a consumer `idle_ms` ago or earlier."""
        entries = []
        for stream, found in self._claim(consumer, count, idle_ms, "new"):
            # Old versions of Redis give nothing for an entry that was deleted while it was pending.
            entries += self._parse(stream, [item for item in found if item])
        return entries

    def hand_over_all(self) -> None:
        """Hand all pending requests over to the slots of other generations, which recover them."""
        arguments: list[Argument] = [GROUP, self._keys.orphans, self._consumer]
        keys = [self._keys.generations, *self._streams]
        self._guarded(lambda: [call(self._client, Call(HAND_OVER_ALL, keys, arguments))])

    def claim_orphans(self) -> bool:
        """Claim requests of slots that are gone; return True if there were any: the reader is `recovering` then."""
        found = any(ids for _, ids in self._claim(self._keys.orphans, _CLAIM_COUNT, 0, "begun"))
        if found:
            self.start_over()
        return found

    def _claim(self, consumer: str, count: int, idle_ms: int, kind: str) -> list[tuple[str, list[Any]]]:
        streams = list(self._streams)
        arguments: list[Argument] = [GROUP, self._consumer, consumer, min(count, _CLAIM_COUNT), idle_ms, kind]
        replies = self._guarded(lambda: call(self._client, Call(CLAIM, streams, arguments)))
        return list(zip(streams, replies, strict=False))

    def take_over(self) -> bool:
        """Take over requests of slots that have died; return True if there were any: the reader is `recovering` then.

        Call it at least every 100 ms, too.
        """
        watch = self._watch
        if watch is None or self.recovering or not any(self._guarded(lambda: [watch.take_over()])):
            return False
        self.start_over()
        return True

    def longest_wait_ms(self) -> int:
        """Return for how many milliseconds the oldest request that no slot has read has waited; 0 if there is none."""
        return int(call(self._client, Call(BACKLOG, [*self._streams], [GROUP]))[1])

    def length(self) -> int:
        """Return the number of unanswered requests of the job, those that slots have read included."""
        with self._client.pipeline(transaction=False) as pipeline:
            for stream in self._streams:
                pipeline.xlen(stream)
            return sum(pipeline.execute())

    def heartbeat(self) -> None:
        """Show Redis now and then that this consumer lives; call it at least every 100 ms.

        Redis does not count a read that finds nothing as activity, and a slot busy with long batches does not read.
        """
        if time.monotonic() >= self._next_heartbeat:
            self._xreadgroup(dict.fromkeys(self._streams, AFTER_ALL), 1, None)
            self._next_heartbeat = time.monotonic() + self._heartbeat_s

    def _read_all(self, count: int, block_ms: int | None, longest_ms: int) -> list[Entry]:
        """Read up to `count` entries of each stream, in one command."""
        new = dict.fromkeys(self._streams, ">")
        if not longest_ms:
            return self.found(self._xreadgroup(new, count, block_ms))
        self._reading.begin(*self._command(new, count, longest_ms), limit=longest_ms / 1000)
        return self.read_on(block_ms or 0)

    def found(self, replies: _Replies) -> list[Entry]:
        """Return the entries in the reply to a read of all streams, those of higher priority first."""
        raw_of = {stream.decode(): raw for stream, raw in replies}
        self._busy = set(raw_of)
        return [entry for stream in self._streams for entry in self._parse(stream, raw_of.get(stream, []))]

    def _read_weighted(self, count: int) -> list[Entry]:
        """Read up to `count` entries: of each stream its part, then the rest from streams with more, best first."""
        entries: dict[str, list[Entry]] = {stream: [] for stream in self._streams}
        asked: set[str] = set()
        left = count

        def take(stream: str, most: int) -> int:
            raw = self._read_one(stream, ">", most)
            asked.add(stream)
            (self._busy.add if len(raw) == most else self._busy.discard)(stream)
            entries[stream] += self._parse(stream, raw)
            return len(raw)

        parts = self._round_robin.divide(count)
        for stream, priority in self._streams.items():
            if parts[priority]:
                left -= take(stream, parts[priority])
        for stream in self._streams:
            if left and (stream in self._busy or stream not in asked):
                left -= take(stream, left)
        return [entry for stream in self._streams for entry in entries[stream]]

    def _read_one(self, stream: str, after: str, count: int) -> list[tuple[bytes, Sequence[bytes] | None]]:
        replies = self._xreadgroup({stream: after}, count, None)
        return replies[0][1] if replies else []

    def _deliveries(self, stream: str, entry_id: bytes) -> int:
        """Return the number of deliveries of an entry; 0 if it is no longer pending here: answered, or left."""
        here = self._consumer
        pending = self._guarded(lambda: self._client.xpending_range(stream, GROUP, entry_id, entry_id, 1, here))
        return int(pending[0]["times_delivered"]) if pending else 0

    def _guarded(self, action: Callable[[], list[T]]) -> list[T]:
        """Return what an action finds; if a stream or group is gone, create it again and return nothing."""
        try:
            return action()
        except ResponseError as error:
            if not GONE.search(str(error)):
                raise
            log.warning("job %s: a stream or its group has disappeared, creating it again", self._job)
            create_groups(self._client, self._job)
            return []

    def _claim_abandoned(self) -> list[bytes]:
        claimed = [entry_id for stream in self._streams for entry_id in self._claim_from(stream)]
        if claimed:
            # One look claims a limited number; there may be more.
            self._next_claim = 0.0
        return claimed

    def _claim_from(self, stream: str) -> list[bytes]:
        claimed: list[bytes] = []
        for consumer in self._client.xinfo_consumers(stream, GROUP):
            name = consumer["name"].decode()
            if name == self._consumer or not consumer["pending"] or consumer["idle"] < self._claim_idle_ms:
                continue
            pending = self._client.xpending_range(stream, GROUP, "-", "+", _CLAIM_COUNT, name)
            ids = [item["message_id"] for item in pending]
            if ids:
                taken = self._client.xclaim(stream, GROUP, self._consumer, self._claim_idle_ms, ids, justid=True)
                log.warning("stream %s: claimed %d pending requests of silent consumer %s", stream, len(taken), name)
                claimed += taken
        return claimed

    def _xreadgroup(self, after: dict[str, str], count: int, block_ms: int | None) -> _Replies:
        command = self._command(after, count, block_ms)
        return self._guarded(lambda: self._reading.execute_command(*command) or [])

    def _command(self, after: dict[str, str], count: int, block_ms: int | None) -> list[Argument]:
        command: list[Argument] = ["XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", count]
        command += [] if block_ms is None else ["BLOCK", block_ms]
        return [*command, "STREAMS", *after, *after.values()]

    def _parse(self, stream: str, raw: list[tuple[bytes, Sequence[bytes] | None]]) -> list[Entry]:
        entries = []
        for entry_id, fields in raw:
            try:
                given = with_serde(self._job, fields_of(fields or ()))
                entries.append(parse_entry(entry_id, given, self._streams[stream]))
            except InvalidInput as error:
                # The entry was deleted while pending, or is no request, so no client waits for an answer.
                log.warning("stream %s: dropped an entry: %s", stream, error)
                drop(self._client, stream, entry_id)
        return entries
