"""Reads one job's Redis Stream as one stable consumer of its group; knows nothing of Flink.

A request stays pending in the group until the sink has written its result, so whatever a crash interrupts is found
again: a consumer first reads its own pending entries, then takes over those of consumers that fell silent (a rescale
or a lost host), then new ones.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import redis
from redis.exceptions import ResponseError

from cluster_serving.client.errors import InvalidInput
from cluster_serving.client.protocol import GROUP, Entry, parse_entry

log = logging.getLogger(__name__)

_HEARTBEATS_PER_CLAIM = 10
# Reads the own pending entries behind every possible one. The very last id would not do: Redis takes it for ">".
_AFTER_ALL = "18446744073709551615-0"


def create_group(client: redis.Redis, stream: str) -> None:
    """Create stream and group if they do not exist; it starts at 0, so what was queued before is served too."""
    try:
        client.xgroup_create(stream, GROUP, id="0", mkstream=True)
    except ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


class StreamReader:
    """One consumer.

    Args:
        client: Connection used by this reader alone.
        stream: Stream name.
        consumer: Stable name, so that after a restart the pending entries are its own.
        claim_idle_ms: Silence after which another consumer is taken for dead.
    """

    def __init__(self, client: redis.Redis, stream: str, consumer: str, claim_idle_ms: int) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self._stream = stream
        self._consumer = consumer
        self._claim_idle_ms = claim_idle_ms
        self._pending_after: str | None = "0"
        self._next_claim = 0.0
        self._next_heartbeat = 0.0

    def read(self, count: int, block_ms: int | None) -> list[Entry]:
        """Read up to `count` entries; own pending ones first, then abandoned ones, then new ones.

        Args:
            count: Most entries to return, at least 1.
            block_ms: Longest wait for new ones in milliseconds; None does not wait.

        Raises:
            redis.RedisError: Redis cannot be used; nothing was lost, call again.
        """
        try:
            self.heartbeat()
            if self._pending_after is not None and (entries := self._read_own_pending(count)):
                return entries
            if time.monotonic() >= self._next_claim:
                self._next_claim = time.monotonic() + self._claim_idle_ms / 4000
                if entries := self._claim_abandoned(count):
                    self._next_claim = 0.0
                    return entries
            return self._parse(self._xreadgroup(">", count, block_ms))
        except ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            log.warning("stream %s: stream or group is gone, creating it again", self._stream)
            create_group(self._client, self._stream)
            self._pending_after = "0"
            return []

    def heartbeat(self) -> None:
        """Show now and then that this consumer lives; to be called at least every 100 ms.

        A read that finds nothing does not count as a sign of life in Redis, and a slot busy with long batches reads
        nothing at all.

        Raises:
            redis.RedisError: Redis cannot be used.
        """
        if time.monotonic() >= self._next_heartbeat:
            self._xreadgroup(_AFTER_ALL, 1, None)
            self._next_heartbeat = time.monotonic() + self._claim_idle_ms / 1000 / _HEARTBEATS_PER_CLAIM

    def _read_own_pending(self, count: int) -> list[Entry]:
        raw = self._xreadgroup(str(self._pending_after), count, None)
        self._pending_after = raw[-1][0].decode() if raw else None
        return self._parse(raw)

    def _claim_abandoned(self, count: int) -> list[Entry]:
        for consumer in self._client.xinfo_consumers(self._stream, GROUP):
            name = consumer["name"].decode()
            if name == self._consumer or not consumer["pending"] or consumer["idle"] < self._claim_idle_ms:
                continue
            pending = self._client.xpending_range(self._stream, GROUP, "-", "+", count, name)
            ids = [item["message_id"] for item in pending]
            claimed = self._client.xclaim(self._stream, GROUP, self._consumer, self._claim_idle_ms, ids) if ids else []
            if claimed:
                log.warning("stream %s: took %d pending requests over from %s", self._stream, len(claimed), name)
                return self._parse(claimed)
        return []

    def _xreadgroup(self, after: str, count: int, block_ms: int | None) -> list[tuple[bytes, Any]]:
        answer = self._client.xreadgroup(GROUP, self._consumer, {self._stream: after}, count=count, block=block_ms)
        return answer[0][1] if answer else []

    def _parse(self, raw: list[tuple[bytes, Any]]) -> list[Entry]:
        entries = []
        for entry_id, fields in raw:
            try:
                entries.append(parse_entry(entry_id, fields or {}))
            except InvalidInput as error:
                # Deleted while pending, or not a request at all: there is no client to answer.
                log.warning("stream %s: dropped an entry: %s", self._stream, error)
                self._client.xack(self._stream, GROUP, entry_id)
                self._client.xdel(self._stream, entry_id)
        return entries
