"""What a stage may do: around each read of a slot, and around each write of its answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import AnsweredBatch
from cluster_serving.connectors.slot.base import Slot
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.figures.counts import Counts


class Stage:
    """One concern around reading; every method does nothing by default.

    A source makes its stages when it opens, and calls each of them, in their order, once a read; not once a request.
    What a stage takes, and what is read from the streams, passes through the stages behind it. Each method may raise
    `redis.RedisError`: the slot then reads what it had read again.

    Args:
        slot: The slot that reads.
    """

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    def begin(self) -> None:
        """Do what is due before a read."""

    def take(self, room: int) -> Sequence[Entry]:
        """Return up to `room` requests that come before those of the streams."""
        return ()

    def may_read(self) -> bool:
        """Return False if this slot leaves the streams to others now."""
        return True

    def wait_ms(self, block_ms: int | None) -> int | None:
        """Return for how long a read may wait for requests, at most as long as given; None does not wait."""
        return block_ms

    def admit(self, entries: list[Entry]) -> list[Entry]:
        """Return the requests to compute, changed perhaps; the others are refused, or left to other slots."""
        return entries

    def readmit(self, entry: Entry) -> Entry | None:
        """Return a request that a crash or stop has interrupted, changed perhaps; None if it is not computed here."""
        return entry

    def close(self) -> None:
        """Release what the stage holds."""


class AnswerStage:
    """One concern around answering; every method does nothing by default.

    A sink makes its stages when it opens; in process mode that is another process than that of the source.

    Args:
        client: Connection to the job's Redis.
        options: Redis, job and generation of the slot.
        clock: The clock of that Redis.
        counts: Counts of the slot.
    """

    def __init__(self, client: redis.Redis, options: RedisOptions, clock: RedisClock, counts: Counts) -> None:
        pass

    def answering(self, batch: AnsweredBatch) -> AnsweredBatch:
        """Return a batch as it is written to Redis."""
        return batch

    def answered(self, batch: AnsweredBatch, write_us: int) -> None:
        """Take note of a batch that was written, in `write_us` microseconds."""

    def close(self) -> None:
        """Release what the stage holds."""


MakeStage = Callable[[Slot], Stage]
"""A subclass of `Stage`, or a function that makes one; Flink sends it to the slots."""

MakeAnswerStage = Callable[[redis.Redis, RedisOptions, RedisClock, Counts], AnswerStage]
"""A subclass of `AnswerStage`, or a function that makes one; Flink sends it to the slots."""
