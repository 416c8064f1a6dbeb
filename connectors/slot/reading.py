"""Reading: what a slot reads from Redis next, and hands over to the model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import NamedTuple

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.base import Slot
from cluster_serving.connectors.slot.deadlines import Deadlines
from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.connectors.slot.generation import GenerationView
from cluster_serving.connectors.slot.metrics import Metrics
from cluster_serving.connectors.slot.permissions import refusal
from cluster_serving.connectors.slot.recovery import Recovery
from cluster_serving.connectors.slot.redis import Backoff, RedisClock, connect
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.connectors.slot.stage import MakeStage
from cluster_serving.connectors.slot.stream import MakeWatch, StreamReader
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.generations import IDLE_LOOK_S
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport

_BLOCK_MS = 100
# A read of an idle slot waits so long: a tick costs as much as many looks whether Flink cancels the slot.
_IDLE_BLOCK_MS = round(1000 * IDLE_LOOK_S)
_CANCEL_LOOK_MS = 500
_LONGEST_TICK = 0.2
# Process mode. If Flink cancels an operator at the moment at which a tick ends by itself, Beam may fail to release its
# worker ("Reference count must not be negative"), and then Flink ends the whole TaskManager. So few ticks end.
_LONGEST_WAIT = 5.0
_BATCH_BYTES = 4 << 20
# Slots share the waiting requests if the model takes longer than this for each: one slot that takes all would leave
# others idle. With a faster model, one large batch costs less than several small ones.
SHARED_SECONDS = 0.001


@dataclass(frozen=True)
class ReadingOptions:
    """Options of the reading of a slot.

    Attributes:
        redis: Redis and job that requests come from; consumers are named `<jobName>-<generation>-<subtask>`.
        read_size: Most entries of one read.
        greedy: A batch is computed as soon as no more requests are on their way. Requests that come while the model is
            busy are then read at once, when it is free.
        process_mode: Flink opens the operators behind the source at their first record, so an empty one is handed over
            first, and nothing is read before they are open. Flink passes records on only at the end of a tick, so each
            tick ends with the first that it reads.
        deadline_ms: Milliseconds that a request without a deadline of its own may wait; 0 for no limit.
        slots: Number of slots that the job asks for.
        stages: What makes the stages of the slot, in their order.
        watch: What makes the watch over the other slots of the job; None for none.
    """

    redis: RedisOptions
    read_size: int
    greedy: bool
    process_mode: bool = False
    deadline_ms: int = 0
    slots: int = 1
    stages: Sequence[MakeStage] = ()
    watch: MakeWatch | None = None


class HandedOver(NamedTuple):
    """Requests for a window that does not wait for them.

    Attributes:
        entries: The requests; None if the window has to take them from the flow control.
        more: True if further requests have been read and follow.
    """

    entries: Sequence[Entry] | None
    more: bool


class Reading:
    """Reader of the requests of one slot; it connects, and reads nothing before its first tick.

    Args:
        options: Redis, job and mode of the slot.
        shared: What the slot shares; this reading takes it over from an earlier attempt.
        parallelism: Number of slots that run: with Flink's adaptive scheduler, it may be lower than the job asks for.
        metrics: Metrics of the source.
        end: File in which the process records its end, see `Attempt.end`.
        is_cancelled: Returns True if Flink cancels the slot, which a read of an idle slot has to notice.

    Attributes:
        flow: Flow control of this attempt at the slot.
    """

    def __init__(
        self,
        options: ReadingOptions,
        shared: SharedSlot,
        parallelism: int,
        metrics: Metrics,
        end: str = "",
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._control = options.redis
        self._options = options.redis.queue
        self._read_size = options.read_size
        self._greedy = options.greedy
        self._process_mode = options.process_mode
        self._slots = options.slots
        self._parallelism = parallelism
        self._is_cancelled = is_cancelled
        # The slot shares its counts for as long as one of its parts holds it.
        self._shared = shared
        client = connect(self._options)
        # Two batches: one is in the model while the next is read. More would be kept from idle slots.
        self.flow = SlotFlowControl(
            2 * self._read_size,
            surplus=shared.surplus,
            read=None if self._process_mode else self._read_directly,
            deadlines=Deadlines(RedisClock(client), options.deadline_ms),
        )
        shared.open(self.flow)
        name = JobKeys(self._options.job).consumer(self._options.generation, shared.index)
        self._reader = self._make_reader(client, name, options.watch)
        self._generation = GenerationView(client, self._control)
        self._slot = Slot(
            *(client, self._options, shared.index, self._reader, self._generation, self.flow),
            *(self._read_size, self._greedy, metrics, shared.counts),
        )
        self._stages = [make(self._slot) for make in options.stages]
        self._recovery = Recovery(self._slot, end, self._stages)
        # Flink ends a worker of process mode though it waits.
        self._read_on_ms = _IDLE_BLOCK_MS if self._process_mode else _CANCEL_LOOK_MS
        self._backoff = Backoff(f"Redis Streams source {name}", metrics.counter("reconnects").inc, shared.counts)
        self._held: list[Entry] = []
        self._ahead = not self._greedy
        self._found_nothing = False
        self._latest_share = 1
        self._sends_empty = self._opening = self._process_mode
        self._earlier_attempts: set[str] = set()
        if self._process_mode:
            with suppress(RedisError):
                self._earlier_attempts = self._attempts()
        # The source counts the first, and the window the second.
        self._handed_over = self._read_by_window = 0

    def _make_reader(self, client: redis.Redis, consumer: str, make_watch: MakeWatch | None) -> StreamReader:
        options, keys = self._options, JobKeys(self._options.job)
        watch = None
        if make_watch is not None and self._slots > 1:
            watch = make_watch(client, keys.streams, consumer, keys.consumers(options.generation))
        return StreamReader(client, options.job, consumer, options.claim_idle_time_s * 1000, watch)

    @property
    def requests(self) -> int:
        """Number of requests that were read so far for the window, or by it."""
        return self._handed_over + self._read_by_window

    def close(self) -> None:
        """Release what the reading holds; the requests of this attempt that are not answered stay pending."""
        with ExitStack() as closing:
            closing.callback(self._slot.client.close)
            closing.callback(self._reader.close)
            for stage in reversed(self._stages):
                closing.callback(stage.close)

    def tick(self) -> Iterator[HandedOver]:
        """Read for a bounded time; yield the requests that the window has to be told of."""
        self._shared.ticks.note()
        self._shared.ticks.generations = self._generation.fields
        if self._sends_empty:
            self._sends_empty = False
            yield HandedOver([], more=False)
            return
        entries, self._held = self._held, []
        entries = entries or self._read_first()
        deadline = time.monotonic() + (0 if self._process_mode else _LONGEST_TICK)
        while entries:
            # Read ahead, so that the last batch of this read says correctly whether more requests follow.
            following = self._read(None) if len(entries) >= self._read_size else []
            yield from self._hand_over(entries, more=bool(following))
            self._handed_over += len(entries)
            if time.monotonic() >= deadline:
                self._held = following
                return
            # A tick costs as much as a read.
            entries = following or self._read(_BLOCK_MS)

    def _read_first(self) -> list[Entry]:
        """Read the first requests of a tick; wait for them until the tick has to end."""
        end = time.monotonic() + _LONGEST_WAIT
        entries = self._read(_BLOCK_MS)
        while not entries and time.monotonic() < end:
            if not (self._process_mode or self._reader.waits) or self._is_cancelled():
                break
            entries = self._read(_BLOCK_MS)
        return entries

    def _hand_over(self, entries: Sequence[Entry], more: bool) -> Iterator[HandedOver]:
        if self.flow.attached:
            if not self.flow.hand_over(entries):
                yield HandedOver(None, more)
        else:
            runs = list(by_size(entries, _BATCH_BYTES))
            for run in runs:
                yield HandedOver(run, more or run is not runs[-1])

    def _read_directly(self, timeout: float) -> list[Entry]:
        """Read new requests in the thread of the window, see `SlotFlowControl`; anything else is left to the source."""
        try:
            self._generation.look()
            # While requests queue up, the source reads ahead.
            if not self._generation.reads or self._reader.recovering or self._ahead:
                return []
            entries = self._read_new(timeout, min(_BLOCK_MS, math.ceil(1000 * timeout)))
        except RedisError:
            self._reader.start_over()
            return []
        if entries:
            self.flow.announce(len(entries))
            self._read_by_window += len(entries)
        return entries

    def _read(self, block_ms: int | None) -> list[Entry]:
        timeout = 0 if block_ms is None else _BLOCK_MS / 1000
        if not self.flow.is_turn(timeout):
            return []
        try:
            if not self._reader.waits:
                self._generation.look()
            if self._reader.waits:
                entries = self._admitted(self._reader.read_on(self._read_on_ms), 0)
            elif not self._generation.reads:
                entries = self._stand_by(timeout)
            elif self._opening and not self._is_open(timeout):
                self._reader.heartbeat()
                entries = []
            elif self._reader.recovering:
                entries = self._recovery.next(timeout)
            else:
                entries = self._read_new(timeout, block_ms)
        except RedisError as error:
            # Redis may have delivered entries in a reply that was lost.
            self._reader.start_over()
            self._shared.ticks.problem = str(refusal(self._slot.client, error) or "")
            self._backoff.failed(error)
            return []
        self._shared.ticks.problem = ""
        self._backoff.succeeded()
        if entries:
            self.flow.announce(len(entries))
        return entries

    def _is_open(self, timeout: float) -> bool:
        """Return True once the window is open, and with it the model; wait for it up to `timeout` seconds."""
        # A window in another process never attaches, but its slot reports.
        self._opening = not self.flow.wait_attached(timeout) and self._attempts() <= self._earlier_attempts
        return not self._opening

    def _attempts(self) -> set[str]:
        """Return the attempts at this slot that have loaded the model, or failed to."""
        number, serving = self._control.generation, self._generation.now.serving
        beside = number if serving and serving.number != number else None
        text = self._slot.client.hget(JobKeys(self._control.job).slots(beside), self._slot.index)
        report = SlotReport.from_json(text) if text else None
        return {report.attempt} if report and report.state != "loading" else set()

    def _stand_by(self, timeout: float) -> list[Entry]:
        """Read nothing: the generation has not begun yet, or it only finishes what it has read."""
        if self._generation.retires:
            self._reader.heartbeat()
            self.flow.take_back()
            surplus, serving = self.flow.surplus.take(self.flow.limit), self._generation.now.serving
            if surplus and serving:
                self._reader.hand_over(surplus, self._slot.keys.handed_to(serving.number))
            elif not self.flow.unanswered:
                # A crash has interrupted these before; they would wait for the end of this generation.
                self._reader.hand_over_all()
        time.sleep(timeout / 2)
        return []

    def _read_new(self, timeout: float, block_ms: int | None) -> list[Entry]:
        if self._reader.take_over():
            return []
        for stage in self._stages:
            stage.begin()
        if self._parallelism > 1:
            if self.flow.take_back():
                # In process mode the other slots are in other processes. A shadow computes its copies later.
                leaves = self._process_mode and not self._control.shadow
                left = self.flow.surplus.take(self.flow.limit) if leaves else []
                if left:
                    self._reader.hand_over(left, self._slot.keys.handed_to(self._options.generation))
                self.flow.wait_idle(timeout)
                self._reader.heartbeat()
                return []
            if surplus := self.flow.surplus.take(self._read_size):
                return surplus
        room = self.flow.capacity(timeout, self._ahead)
        if room and self._parallelism > 1 and self.flow.seconds_per_request > SHARED_SECONDS:
            room = min(room, self._share(timeout))
        if not room:
            self._reader.heartbeat()
            return []
        return self._read_stages(min(room, self._read_size), block_ms)

    def _read_stages(self, room: int, block_ms: int | None) -> list[Entry]:
        """Return what the stages take, or else what the streams have, after the stages behind it."""
        for at, stage in enumerate(self._stages, 1):
            if taken := stage.take(room):
                return self._admitted(list(taken), at)
        # A stage may have found requests that a crash has interrupted.
        if self._reader.recovering:
            return []
        for stage in self._stages:
            block_ms = stage.wait_ms(block_ms)
        if not all(stage.may_read() for stage in self._stages):
            self._reader.heartbeat()
            time.sleep((block_ms or 0) / 1000)
            return []
        longest_ms = _IDLE_BLOCK_MS if block_ms == _BLOCK_MS and self._is_idle() else 0
        return self._admitted(self._reader.read(room, block_ms, longest_ms), 0)

    def _is_idle(self) -> bool:
        """Return True if nothing but a new request can give this slot work: no other slot, and no other generation."""
        return self._found_nothing and self.flow.idle and self._slots == 1 and self._generation.is_alone

    def _admitted(self, entries: list[Entry], behind: int) -> list[Entry]:
        # After a full read more requests are waiting, so that reading ahead makes no batch smaller.
        self._ahead = not self._greedy or len(entries) >= self._read_size
        self._found_nothing = not entries
        for stage in self._stages[behind:]:
            entries = stage.admit(entries)
        return entries

    def _share(self, timeout: float) -> int:
        """Return how many more of the unanswered requests this slot may read, as one of several."""
        waiting = self._reader.length()
        share = math.ceil(waiting / self._parallelism) - self.flow.unanswered
        if share > 0:
            self._latest_share = share
        elif waiting:
            self.flow.wait_idle(timeout)
            return 0
        # If no request waits, the next ones are probably as many as the last time.
        return self._latest_share


def by_size(entries: Sequence[Entry], limit: int) -> Iterator[Sequence[Entry]]:
    """Cut entries into runs of at most `limit` payload bytes, or of one entry, so that none fills Flink's memory."""
    start = size = 0
    for position, entry in enumerate(entries):
        if position > start and size + len(entry.data) > limit:
            yield entries[start:position]
            start, size = position, 0
        size += len(entry.data)
    if entries:
        yield entries[start:]
