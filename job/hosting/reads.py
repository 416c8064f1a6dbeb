"""The reads that wait in Redis for requests of the models that are not in a turn."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Collection, Container, Iterator
from contextlib import ExitStack

import redis

from cluster_serving.job.hosting.blocking import BlockingRead, Replies

_LATELY_S = 1.0
"""Seconds after its last request for which a model is read as the only model of a job is."""

_LATELY_BLOCK_MS, _OTHERS_BLOCK_MS, _IDLE_BLOCK_MS = 250, 1000, 5000
_MOST_READS = 8
"""Most reads that wait for models that were used lately. A read cannot be changed while it waits."""

_LATE_LOOK_S = 1.0
_LONG_AGO = float("-inf")


class WaitingReads:
    """The reads that wait for models: some for those that were used lately, and one for all others.

    The one takes a request of each stream: the number of its models does not count while others are served. Each look
    at the reads is one system call. Models are only counted when a read begins.

    Args:
        client: Client whose settings the connections have.
        consumer: Consumer that the requests are delivered to.
        size: Most requests of a read for models that were used lately, if no stream has more than its share.
    """

    def __init__(self, client: redis.Redis, consumer: str, size: int) -> None:
        self._lately = [BlockingRead(client, consumer) for _ in range(_MOST_READS)]
        self._others = BlockingRead(client, consumer)
        self._size = size
        # A model that was used before stays here until it is in the read of all others.
        self._used_at: dict[str, float] = {}
        # Models that were used lately and are in no read and no turn.
        self._left: dict[str, None] = {}
        self._next_late_look = 0.0

    @property
    def is_idle(self) -> bool:
        """True if no model was used lately."""
        return not self._used_at

    def note_used(self, name: str) -> None:
        """Note that a model is used now."""
        self._used_at[name] = time.monotonic()

    def leave(self, name: str) -> None:
        """Let a read have a model whose turn has ended, unless one has it already."""
        if name in self._used_at and not any(name in read.names for read in self._waiting):
            self._left[name] = None

    def remove(self, name: str) -> None:
        """Forget a model that has gone."""
        self._used_at.pop(name, None)
        self._left.pop(name, None)

    def found(self, timeout: float, waker: socket.socket | None = None) -> Iterator[tuple[Replies, int]]:
        """Yield what the reads have found, and the most requests of each stream; wait for it up to `timeout` seconds.

        Args:
            timeout: Seconds.
            waker: Ends the wait when it can be read.

        Raises:
            redis.RedisError: If Redis cannot be used, or a stream has disappeared.
        """
        waiting = self._waiting
        poll = select.poll()
        if waker is not None:
            poll.register(waker, select.POLLIN)
        for read in waiting:
            poll.register(read.socket, select.POLLIN)
        ready = {number for number, _ in poll.poll(1000 * timeout)}
        now = time.monotonic()
        looks_for_late = now >= self._next_late_look
        if looks_for_late:
            self._next_late_look = now + _LATE_LOOK_S
        for read in waiting:
            if looks_for_late or read.socket.fileno() in ready:
                yield self._end(read), read.count

    def begin(self, names: Collection[str], in_turns: Container[str], is_shared: Callable[[str], bool]) -> None:
        """Let a read wait for each of the models that is in no turn.

        Args:
            names: All models.
            in_turns: The models that are in a turn.
            is_shared: Returns True for a model of which a read takes one request, since other slots take their share.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        if not self._others.waits:
            self._begin_others(names)
        if self._left and (free := next((read for read in self._lately if not read.waits), None)):
            # A model is left again when its turn ends.
            left = [name for name in self._left if name not in in_turns]
            self._left.clear()
            if left:
                count = 1 if any(map(is_shared, left)) else max(1, self._size // len(left))
                free.begin(left, count, _LATELY_BLOCK_MS)

    def close(self) -> None:
        """Close the connections; the reads begin anew with the next `begin`."""
        self._left = dict.fromkeys(self._used_at)
        with ExitStack() as closing:
            for read in (*self._lately, self._others):
                closing.callback(read.close)

    @property
    def _waiting(self) -> list[BlockingRead]:
        return [read for read in (self._others, *self._lately) if read.waits]

    def _end(self, read: BlockingRead) -> Replies:
        try:
            return read.end()
        finally:
            if not read.waits:
                self._left |= dict.fromkeys(name for name in read.names if name in self._used_at)

    def _begin_others(self, names: Collection[str]) -> None:
        now = time.monotonic()
        others = [name for name in names if now - self._used_at.get(name, _LONG_AGO) >= _LATELY_S]
        if others:
            self._others.begin(others, 1, _IDLE_BLOCK_MS if self.is_idle else _OTHERS_BLOCK_MS)
        for name in others:
            self.remove(name)
