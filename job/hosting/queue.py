"""The queue of one model: what it reads from its streams, and the batches that it gathers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from cluster_serving.connectors.slot.base import Slot
from cluster_serving.connectors.slot.deadlines import Deadlines
from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.connectors.slot.generation import GenerationView
from cluster_serving.connectors.slot.metrics import Metrics
from cluster_serving.connectors.slot.reading import SHARED_SECONDS
from cluster_serving.connectors.slot.recovery import Recovery
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.slot.stage import MakeStage
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.job.gathering import Gathering
from cluster_serving.job.hosting.blocking import Replies
from cluster_serving.job.options import JobOptions
from cluster_serving.job.request import GatheredBatch
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.generations import SERVING, Generation
from cluster_serving.protocol.redis.dedicated import DedicatedConnection


@dataclass(frozen=True)
class Host:
    """What the queues of a job share.

    Attributes:
        index: Index of the slot.
        client: Connection to the job's Redis.
        connection: Connection of the thread that reads.
        clock: The clock of that Redis.
        view: Generations of the job.
        consumer: Consumer that requests are delivered to. It is the same after each start: a job that serves several
            models has no generations beside each other.
        metrics: Metrics of the function that reads.
        stages: What makes the stages of a queue, in their order.
        slots: Number of slots of the job.
        end: File in which the process records its end, see `Attempt.end`.
    """

    index: int
    client: Any
    connection: DedicatedConnection
    clock: RedisClock
    view: GenerationView
    consumer: str
    metrics: Metrics
    stages: Sequence[MakeStage]
    slots: int
    end: str

    def is_left(self, consumer: bytes) -> bool:
        """Return True if a consumer is that of a slot that the job has no more: it had several before."""
        prefix, _, index = consumer.rpartition(b"-")
        own, _, _ = self.consumer.encode().rpartition(b"-")
        return prefix == own and index.isdigit() and int(index) >= self.slots


class ModelGenerations(GenerationView):
    """The generation of the job, with the version of one of its models."""

    def __init__(self, host: Host, options: JobOptions) -> None:
        super().__init__(host.client, options.redis)
        redis = options.redis
        self._only = Generation(redis.generation, SERVING, version=redis.version, numbered=redis.numbered)

    def look(self) -> None:
        """Do nothing: the job looks."""

    @property
    def reading(self) -> list[Generation]:
        """The one generation."""
        return [self._only]

    def has_left(self) -> bool:
        """Return False: other slots leave nothing."""
        return False


class ModelQueue:
    """The waiting requests of one model.

    Args:
        host: What the queues share.
        options: Options of the model, as if it were a job.
        counts: Counts of the model.
    """

    def __init__(self, host: Host, options: JobOptions, counts: Counts) -> None:
        redis, size = options.redis, options.batch.max_batch_size
        deadlines = Deadlines(host.clock, options.request_deadline_ms)
        self.flow = SlotFlowControl(2 * size, deadlines=deadlines)
        claim_ms = redis.claim_idle_time_s * 1000
        self._reader = StreamReader(host.client, redis.job, host.consumer, claim_ms, connection=host.connection)
        generation = ModelGenerations(host, options)
        slot = Slot(
            *(host.client, redis, host.index, self._reader, generation, self.flow, size),
            *(options.batch.greedy_batching, host.metrics, counts),
        )
        self._size = size
        self._slots = host.slots
        self._stages = [make(slot) for make in host.stages]
        self._recovery = Recovery(slot, host.end, self._stages)
        self._gathering = Gathering(options.batch, counts, any_size=bool(options.model.padding))
        self._gathering.flow = self.flow
        self._held: list[Entry] = []
        self._is_full = False

    @property
    def recovering(self) -> bool:
        """True if the next request is one that was interrupted."""
        return not self._held and self._reader.recovering

    @property
    def is_shared(self) -> bool:
        """True if each of several slots reads its share of the requests alone: they are slow."""
        return self._slots > 1 and self.flow.seconds_per_request > SHARED_SECONDS

    @property
    def goes_on(self) -> bool:
        """True if a further read probably finds requests."""
        return bool(self._held) or self._is_full or self._reader.recovering

    @property
    def next_expiry(self) -> float | None:
        """Time, in milliseconds since the epoch, at which `expire` has a batch; None for no batch."""
        return self._gathering.next_expiry()

    def start_over(self) -> None:
        """Look for requests that are pending: the reply of Redis that had them may be lost."""
        self._held = []
        self._reader.start_over()

    def look_for_abandoned(self) -> None:
        """Look for requests that other consumers have read, with the next read."""
        self._reader.look_for_abandoned()

    def succeed(self, earlier: ModelQueue) -> None:
        """Take over what another queue of the model has read; its gathered requests have been answered."""
        self._held, self._is_full = earlier._held, earlier._is_full
        if earlier._reader.recovering:
            self._reader.start_over()

    def give(self, replies: Replies, count: int) -> None:
        """Take requests that a read of several queues has found; a read takes at most `count` of each stream."""
        self._held += self._reader.found(replies)
        self._is_full = any(len(raw) >= count for _, raw in replies)

    def hold(self, entries: Sequence[Entry]) -> None:
        """Take requests that another slot has read."""
        self._held += entries

    def leave(self) -> list[Entry]:
        """Give away the requests that were read and not served yet; those that were interrupted are read later."""
        left, self._held = self._held, []
        return left

    def read(self) -> list[Entry]:
        """Return the requests that are served next; do not wait for them.

        Raises:
            redis.RedisError: If Redis cannot be used.
        """
        entries, self._held = self._held[: self._size], self._held[self._size :]
        for stage in self._stages:
            stage.begin()
        if entries:
            if self._is_full and len(entries) < self._size and not self._reader.recovering:
                # The read of all models that are seldom asked takes one request of each.
                entries += self._read(self._size - len(entries))
            entries = self._admitted(entries)
        elif self._reader.recovering:
            entries = self._recovery.next(0)
        else:
            entries = self._admitted(self._read(self._size))
        if entries:
            self.flow.announce(len(entries))
        return entries

    def gather(self, entries: Sequence[Entry]) -> Iterator[GatheredBatch]:
        """Take requests; yield the batches that are complete."""
        return self._gathering.take(entries, more=False)

    def expire(self, now_ms: float) -> Iterator[GatheredBatch]:
        """Yield the batches that have waited long enough."""
        return self._gathering.expire(now_ms)

    def close(self) -> None:
        """Release what the stages hold."""
        with ExitStack() as closing:
            for stage in reversed(self._stages):
                closing.callback(stage.close)

    def _read(self, count: int) -> list[Entry]:
        room = min(count, max(1, self.flow.limit - self.flow.unanswered))
        if self.is_shared:
            room = min(room, max(1, math.ceil(self._reader.length() / self._slots)))
        entries = self._reader.read(room, None)
        self._is_full = len(entries) >= room
        return entries

    def _admitted(self, entries: list[Entry]) -> list[Entry]:
        for stage in self._stages:
            entries = stage.admit(entries)
        return entries
