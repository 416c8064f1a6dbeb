"""Redis Streams source: a JVM tick source, and a Python function that reads at each tick.

PyFlink has no source API for Python. Each tick causes reads for a bounded time; between ticks Flink handles
cancellation, barriers and metrics. An endless loop in Python would starve them.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from pyflink.datastream import FlatMapFunction, RuntimeContext
from redis.exceptions import RedisError

from cluster_serving.connectors.flink.entry_batch import EntryBatch, by_size
from cluster_serving.connectors.flink.runtime import (
    SelfClosing,
    cancellation,
    count_records_out,
    subtask_count,
    subtask_index,
)
from cluster_serving.connectors.flink.slot_keys import SlotKeys
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.base import Slot
from cluster_serving.connectors.slot.deadlines import Deadlines
from cluster_serving.connectors.slot.flow_control import SlotFlowControl
from cluster_serving.connectors.slot.generation import GenerationView
from cluster_serving.connectors.slot.permissions import refusal
from cluster_serving.connectors.slot.recovery import Recovery
from cluster_serving.connectors.slot.redis import Backoff, RedisClock, connect
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.connectors.slot.stage import MakeStage
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.connectors.slot.worker import record_end
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.generations import IDLE_LOOK_S
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport

NAME = "Redis Streams source"

_BLOCK_MS = 100
# A read of an idle slot waits so long: a tick costs as much as many looks whether Flink cancels the slot.
_IDLE_BLOCK_MS = round(1000 * IDLE_LOOK_S)
_CANCEL_LOOK_MS = 200
_LONGEST_TICK = 0.2
# Process mode. If Flink cancels an operator at the moment at which a tick ends by itself, Beam may fail to release its
# worker ("Reference count must not be negative"), and then Flink ends the whole TaskManager. So few ticks end.
_LONGEST_WAIT = 5.0
_BATCH_BYTES = 4 << 20
# Slots share the waiting requests if the model takes longer than this for each: one slot that takes all would leave
# others idle. With a faster model, one large batch costs less than several small ones.
_SHARED_SECONDS = 0.001


class RedisStreamsSource(SelfClosing, FlatMapFunction):
    """Reader of requests, which are emitted as serialized entry batches.

    Args:
        options: Redis and job that requests come from; consumers are named `<jobName>-<generation>-<subtask>`.
        read_size: Most entries of one read.
        slot_keys: Keys that lead from a source subtask to the window subtask of the same index.
        greedy: A batch is computed as soon as no more requests are on their way. Requests that come while the model is
            busy are then read at once, when it is free.
        process_mode: Flink opens the operators behind this source at their first record, so an empty batch is sent
            first, and nothing is read before they are open. It passes records on only at the end of a tick, so each
            tick ends with the first that it reads.
        deadline_ms: Milliseconds that a request without a deadline of its own may wait; 0 for no limit.
        slots: Number of slots that the job asks for.
        stages: What makes the stages of the slot, in their order.
    """

    def __init__(
        self,
        options: RedisOptions,
        read_size: int,
        slot_keys: SlotKeys,
        greedy: bool,
        process_mode: bool,
        deadline_ms: int = 0,
        slots: int = 1,
        stages: Sequence[MakeStage] = (),
    ) -> None:
        self._control = options
        self._options = options.queue
        self._read_size = read_size
        self._slot_keys = slot_keys
        self._greedy = greedy
        self._process_mode = process_mode
        self._deadline_ms = deadline_ms
        self._slots = slots
        self._make_stages = stages

    def open(self, runtime_context: RuntimeContext) -> None:
        """Connect; nothing is read yet."""
        end = record_end() if self._process_mode else ""
        index = subtask_index(runtime_context)
        self._parallelism = subtask_count(runtime_context)
        self._slot_key = self._slot_keys.key_of(index, self._parallelism)
        client = connect(self._options)
        self._shared = SharedSlot.of(self._control.name, index)
        # Two batches: one is in the model while the next is read. More would be kept from idle slots.
        self._flow = SlotFlowControl(
            2 * self._read_size,
            surplus=self._shared.surplus,
            read=None if self._process_mode else self._read_directly,
            deadlines=Deadlines(RedisClock(client), self._deadline_ms),
        )
        self._shared.open(self._flow)
        self._ticks = self._shared.ticks
        keys = JobKeys(self._options.job)
        name = keys.consumer(self._options.generation, index)
        # With Flink's adaptive scheduler, fewer slots may run than the job asks for.
        peers = keys.consumers(self._options.generation) if self._slots > 1 else None
        self._reader = StreamReader(client, self._options.job, name, self._options.claim_idle_time_s * 1000, peers)
        self._generation = GenerationView(client, self._control)
        metrics = runtime_context.get_metrics_group()
        counts = self._shared.counts
        self._slot = Slot(
            client,
            self._options,
            index,
            self._reader,
            self._generation,
            self._flow,
            self._read_size,
            self._greedy,
            metrics,
            counts,
        )
        self._stages = [make(self._slot) for make in self._make_stages]
        self._recovery = Recovery(self._slot, end, self._stages)
        self.close_with(*(stage.close for stage in self._stages), self._reader.close, client.close)
        self._requests = metrics.counter("requests")
        self._count_records_out = count_records_out(runtime_context)
        self._is_cancelled = cancellation()
        # Flink ends a worker of process mode though it waits.
        self._read_on_ms = _IDLE_BLOCK_MS if self._process_mode else _CANCEL_LOOK_MS
        self._backoff = Backoff(f"{NAME} {name}", metrics.counter("reconnects").inc, counts)
        self._held: list[Entry] = []
        self._ahead = not self._greedy
        self._found_nothing = False
        self._latest_share = 1
        self._sends_empty = self._opening = self._process_mode
        self._earlier_attempts: set[str] = set()
        if self._process_mode:
            with suppress(RedisError):
                self._earlier_attempts = self._attempts()
        # Numbers of requests. The window counts the first, and the source the second.
        self._read_directly_so_far = self._counted_directly = 0

    def flat_map(self, value: int) -> Iterator[bytes]:
        """Read for a bounded time; `value` is the number of the tick and is not used."""
        self._ticks.note()
        self._ticks.generations = self._generation.fields
        self._count(0, 0)
        if self._sends_empty:
            self._sends_empty = False
            yield self._batch([], more=False)
            return
        entries, self._held = self._held, []
        entries = entries or self._read_first()
        deadline = time.monotonic() + (0 if self._process_mode else _LONGEST_TICK)
        while entries:
            # Read ahead, so that the last batch of this read says correctly whether more requests follow.
            following = self._read(None) if len(entries) >= self._read_size else []
            emitted = 0
            for record in self._hand_over(entries, more=bool(following)):
                emitted += 1
                yield record
            self._count(len(entries), len(entries) - emitted)
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

    def _count(self, requests: int, uncounted: int) -> None:
        """Count requests, of which Flink counts some by itself, and those that the window has read meanwhile."""
        # Objects of Java are for the thread of their operator.
        directly = self._read_directly_so_far - self._counted_directly
        self._counted_directly += directly
        if requests + directly:
            self._requests.inc(requests + directly)
        if uncounted + directly:
            self._count_records_out(uncounted + directly)

    def _hand_over(self, entries: Sequence[Entry], more: bool) -> Iterator[bytes]:
        """Hand entries over to the window; yield the records that Flink has to transport for that."""
        if self._flow.attached:
            if not self._flow.hand_over(entries):
                yield self._batch(None, more)
        else:
            runs = list(by_size(entries, _BATCH_BYTES))
            for run in runs:
                yield self._batch(run, more or run is not runs[-1])

    def _batch(self, entries: Sequence[Entry] | None, more: bool) -> bytes:
        return EntryBatch(self._slot_key, more, self._flow.id, entries).to_bytes()

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
            self._flow.announce(len(entries))
            self._read_directly_so_far += len(entries)
        return entries

    def _read(self, block_ms: int | None) -> list[Entry]:
        timeout = 0 if block_ms is None else _BLOCK_MS / 1000
        if not self._flow.is_turn(timeout):
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
            self._ticks.problem = str(refusal(self._slot.client, error) or "")
            self._backoff.failed(error)
            return []
        self._ticks.problem = ""
        self._backoff.succeeded()
        if entries:
            self._flow.announce(len(entries))
        return entries

    def _is_open(self, timeout: float) -> bool:
        """Return True once the window is open, and with it the model; wait for it up to `timeout` seconds."""
        # A window in another process never attaches, but its slot reports.
        self._opening = not self._flow.wait_attached(timeout) and self._attempts() <= self._earlier_attempts
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
            self._flow.take_back()
            surplus, serving = self._flow.surplus.take(self._flow.limit), self._generation.now.serving
            if surplus and serving:
                self._reader.hand_over(surplus, self._slot.keys.handed_to(serving.number))
            elif not self._flow.unanswered:
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
            if self._flow.take_back():
                # In process mode the other slots are in other processes. A shadow computes its copies later.
                leaves = self._process_mode and not self._control.shadow
                left = self._flow.surplus.take(self._flow.limit) if leaves else []
                if left:
                    self._reader.hand_over(left, self._slot.keys.handed_to(self._options.generation))
                self._flow.wait_idle(timeout)
                self._reader.heartbeat()
                return []
            if surplus := self._flow.surplus.take(self._read_size):
                return surplus
        room = self._flow.capacity(timeout, self._ahead)
        if room and self._parallelism > 1 and self._flow.seconds_per_request > _SHARED_SECONDS:
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
        return self._found_nothing and self._flow.idle and self._slots == 1 and self._generation.is_alone

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
        share = math.ceil(waiting / self._parallelism) - self._flow.unanswered
        if share > 0:
            self._latest_share = share
        elif waiting:
            self._flow.wait_idle(timeout)
            return 0
        # If no request waits, the next ones are probably as many as the last time.
        return self._latest_share
