"""Reads one job's Redis Streams, one for each priority, as one stable consumer of their group; knows nothing of Flink.

A request stays pending in the group until the sink has written its result, so whatever a crash interrupts is found
again: a consumer first reads its own pending entries, then takes over those of consumers that fell silent (a rescale
or a lost host), then new ones.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import redis
from redis.exceptions import ResponseError

from cluster_serving.connectors.shares import Shares
from cluster_serving.protocol.entry import Entry, parse_entry
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.keys import GROUP, PRIORITIES, stream_of, streams_of
from cluster_serving.protocol.original import image_stream

T = TypeVar("T")

log = logging.getLogger(__name__)

_HEARTBEATS_PER_CLAIM = 10
_CLAIM_COUNT = 100
_RECOVERY_PAUSE = 0.002
# Reads the own pending entries behind every possible one. The very last id would not do: Redis takes it for ">".
_AFTER_ALL = "18446744073709551615-0"


def create_group(client: redis.Redis, stream: str) -> None:
    """Create stream and group if they do not exist; it starts at 0, so what was queued before is served too.

    An original client that comes before the job may have made the group at the end of the stream, behind what it had
    queued: a group that nobody has read from is set back.
    """
    # Asked first: at its memory limit, Redis refuses to create even what exists, and only the job can empty it.
    groups: Any = client.xinfo_groups(stream) if client.exists(stream) else []
    group = next((group for group in groups if group["name"] == GROUP.encode()), None)
    if group is None:
        try:
            client.xgroup_create(stream, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
    elif not group["consumers"]:
        client.xgroup_setid(stream, GROUP, "0")


def create_groups(client: redis.Redis, job: str) -> None:
    """Create what is missing of a job's streams and their groups."""
    for stream in streams_of(job):
        create_group(client, stream)


def drop(client: redis.Redis, stream: str, entry_id: bytes) -> None:
    """Remove an entry that nobody is to be answered for."""
    client.xack(stream, GROUP, entry_id)
    client.xdel(stream, entry_id)


class StreamReader:
    """One consumer.

    As long as at most one priority has requests waiting, a read is one command for all streams. Otherwise the streams
    are read one by one, as their shares say.

    Args:
        client: Connection used by this reader alone.
        job: `jobName`.
        consumer: Stable name, so that after a restart the pending entries are its own.
        claim_idle_ms: Silence after which another consumer is taken for dead.
        on_loss: Called when stream or group were gone, as after FLUSHALL, to restore what else the job keeps in Redis.
    """

    def __init__(
        self,
        client: redis.Redis,
        job: str,
        consumer: str,
        claim_idle_ms: int,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self._job = job
        self._streams = {stream_of(job, priority): priority for priority in PRIORITIES}
        self._consumer = consumer
        self._claim_idle_ms = claim_idle_ms
        self._on_loss = on_loss
        self._shares = Shares()
        # Streams that probably have more requests waiting.
        self._busy: set[str] = set()
        # Streams that may have own pending entries, and after which id.
        self._pending_after = dict.fromkeys(self._streams, "0")
        self._recovered: tuple[str, bytes] | None = None
        self._next_claim = 0.0
        self._next_heartbeat = 0.0

    @property
    def recovering(self) -> bool:
        """Whether own pending entries may be left from before: call `recover` until this is false."""
        return bool(self._pending_after)

    def start_over(self) -> None:
        """Look for own pending entries again: to be called after every error, since an answer may have been lost."""
        self._pending_after = dict.fromkeys(self._streams, "0")
        self._recovered = None

    def recover(self, patience: float) -> tuple[Entry, int] | None:
        """Read the next own pending entry, once the one before it is answered.

        One at a time: if one of them kills the process, only its own count grows, and not that of the others in its
        batch.

        Args:
            patience: Seconds to wait for the one before to be answered.

        Returns:
            The entry, and how often it has been delivered by now; None if there is none (yet).

        Raises:
            redis.RedisError: Redis cannot be used; call `start_over`, then nothing is lost.
        """
        deadline = time.monotonic() + patience
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

    def read(self, count: int, block_ms: int | None) -> list[Entry]:
        """Read up to `count` new entries, those of higher priority first.

        Now and then it looks for entries of consumers that fell silent; when it has taken some over, it returns none
        and is `recovering` again.

        Args:
            count: Most entries to return, at least 1; of each priority, in the first read that finds several.
            block_ms: Longest wait for new ones in milliseconds; None does not wait.

        Raises:
            redis.RedisError: Redis cannot be used; call `start_over`, then nothing is lost.
        """
        self.heartbeat()
        if time.monotonic() >= self._next_claim:
            self._next_claim = time.monotonic() + self._claim_idle_ms / 4000
            if self._guarded(self._claim_abandoned):
                self.start_over()
                return []
        shared = self._read_shared(count) if len(self._busy) > 1 else []
        return shared or self._read_all(count, block_ms)

    def length(self) -> int:
        """How many requests of the job are not answered yet, whether a slot has them or not.

        Raises:
            redis.RedisError: Redis cannot be used.
        """
        with self._client.pipeline(transaction=False) as pipeline:
            for stream in self._streams:
                pipeline.xlen(stream)
            return sum(pipeline.execute())

    def heartbeat(self) -> None:
        """Show now and then that this consumer lives; to be called at least every 100 ms.

        A read that finds nothing does not count as a sign of life in Redis, and a slot busy with long batches reads
        nothing at all.

        Raises:
            redis.RedisError: Redis cannot be used.
        """
        if time.monotonic() >= self._next_heartbeat:
            self._guarded(lambda: self._xreadgroup(dict.fromkeys(self._streams, _AFTER_ALL), 1, None))
            self._next_heartbeat = time.monotonic() + self._claim_idle_ms / 1000 / _HEARTBEATS_PER_CLAIM

    def _read_all(self, count: int, block_ms: int | None) -> list[Entry]:
        """Up to `count` entries of each stream, in one command."""
        found = self._guarded(lambda: self._xreadgroup(dict.fromkeys(self._streams, ">"), count, block_ms))
        raw_of = {stream.decode(): raw for stream, raw in found}
        self._busy = set(raw_of)
        return [entry for stream in self._streams for entry in self._parse(stream, raw_of.get(stream, []))]

    def _read_shared(self, count: int) -> list[Entry]:
        """Up to `count` entries: to each stream its share, and what is left to those that have more, best first."""
        found: dict[str, list[Entry]] = {stream: [] for stream in self._streams}
        asked: set[str] = set()
        left = count

        def take(stream: str, most: int) -> int:
            raw = self._read_one(stream, ">", most)
            asked.add(stream)
            (self._busy.add if len(raw) == most else self._busy.discard)(stream)
            found[stream] += self._parse(stream, raw)
            return len(raw)

        shares = self._shares.of(count)
        for stream, priority in self._streams.items():
            if shares[priority]:
                left -= take(stream, shares[priority])
        for stream in self._streams:
            if left and (stream in self._busy or stream not in asked):
                left -= take(stream, left)
        return [entry for entries in found.values() for entry in entries]

    def _read_one(self, stream: str, after: str, count: int) -> list[tuple[bytes, Any]]:
        found = self._guarded(lambda: self._xreadgroup({stream: after}, count, None))
        return found[0][1] if found else []

    def _deliveries(self, stream: str, entry_id: bytes) -> int:
        """How often an entry was delivered; 0 if it is not pending any more."""
        pending = self._guarded(lambda: self._client.xpending_range(stream, GROUP, entry_id, entry_id, 1))
        return int(pending[0]["times_delivered"]) if pending else 0

    def _guarded(self, action: Callable[[], list[T]]) -> list[T]:
        try:
            return action()
        except ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            log.warning("job %s: a stream or group is gone, creating it again", self._job)
            create_groups(self._client, self._job)
            self._on_loss()
            return []

    def _claim_abandoned(self) -> list[bytes]:
        claimed = [entry_id for stream in self._streams for entry_id in self._claim_from(stream)]
        if claimed:
            # There may be more than one look takes over.
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
                claimed += self._client.xclaim(stream, GROUP, self._consumer, self._claim_idle_ms, ids, justid=True)
                log.warning("stream %s: took %d pending requests over from %s", stream, len(claimed), name)
        return claimed

    def _xreadgroup(
        self, after: dict[str, str], count: int, block_ms: int | None
    ) -> list[tuple[bytes, list[tuple[bytes, Any]]]]:
        answer = self._client.xreadgroup(GROUP, self._consumer, after, count=count, block=block_ms)
        return list(answer or ())

    def _parse(self, stream: str, raw: list[tuple[bytes, Any]]) -> list[Entry]:
        entries = []
        parse = image_stream.parse_entry if self._job == image_stream.STREAM else parse_entry
        for entry_id, fields in raw:
            try:
                entries.append(parse(entry_id, fields or {}, self._streams[stream]))
            except InvalidInput as error:
                # Deleted while pending, or not a request at all: there is no client to answer.
                log.warning("stream %s: dropped an entry: %s", stream, error)
                drop(self._client, stream, entry_id)
        return entries
