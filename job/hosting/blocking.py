"""A read of many streams that waits in Redis while the slot does other things."""

from collections.abc import Collection, Sequence
from typing import Any

import redis

from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.redis.dedicated import DedicatedConnection

Replies = list[tuple[bytes, list[tuple[bytes, Sequence[bytes] | None]]]]
"""Entries by stream."""


class BlockingRead:
    """A read of new requests of several models, on a connection of its own.

    Args:
        client: Client whose settings the connection has.
        consumer: Consumer that the requests are delivered to.

    Attributes:
        names: The models whose streams the last read has.
        count: Most requests of each stream in the last read.
    """

    def __init__(self, client: redis.Redis, consumer: str) -> None:
        self._connection = DedicatedConnection(client)
        self._consumer = consumer
        self.names: frozenset[str] = frozenset()
        self.count = 0

    @property
    def waits(self) -> bool:
        """True from `begin` until `end` has the reply."""
        return self._connection.waits

    @property
    def socket(self) -> Any:
        """The socket on which the reply comes while the read `waits`."""
        return self._connection.socket

    def begin(self, names: Collection[str], count: int, block_ms: int) -> None:
        """Begin to read up to `count` requests of each stream; it waits for the first one.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        self.names, self.count = frozenset(names), count
        streams = [stream for name in names for stream in JobKeys(name).streams]
        command = ["XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", count, "BLOCK", block_ms, "STREAMS"]
        self._connection.begin(*command, *streams, *(">" for _ in streams), limit=block_ms / 1000)

    def end(self) -> Replies:
        """Return the entries of the read; an empty list if it goes on (`waits`), or has found no entries.

        Raises:
            redis.RedisError: If Redis cannot be used, or a stream has disappeared.
        """
        found: Replies = (self._connection.end(0) if self.waits else None) or []
        return found

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
