"""Batching window: the Flink function around `job.batcher`."""

import math
import time
from collections.abc import Hashable, Iterator, Sequence

from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from cluster_serving.connectors.entry_batch import EntryBatch
from cluster_serving.connectors.failing_clients import FailingClients
from cluster_serving.connectors.flow_control import SlotFlowControl, find_flow_control
from cluster_serving.connectors.runtime import subtask_index
from cluster_serving.job.batcher import Batcher
from cluster_serving.job.options import BatchOptions
from cluster_serving.job.request import Request, with_errors
from cluster_serving.protocol import columns
from cluster_serving.protocol.counts import Counts
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.metrics import CLOSED, GATHERING
from cluster_serving.protocol.signature import any_size

NAME = "Batching window"

# Flink cancels, and updates metrics, when the window returns.
_LONGEST_STAY = 0.2
_TIMEOUT = 0.1


class BatchingWindow(KeyedProcessFunction):
    """Decoder of requests, which are emitted in batches of one signature.

    The key leads to the slot of the source, so each slot has its window. Requests are held in memory, not in Flink
    state: until they are answered they are pending in Redis, which delivers them again after a failure.

    Requests of a client whose requests make batches fail are batched apart. Batches are counted among the figures of
    the `generation` (`protocol.counts`).

    With `any_size`, requests that only differ in the sizes of their inputs share a batch (`padding`).

    With `lingers`, the window waits in Python for the next requests after a batch. Flink's way from the source to the
    window takes longer than all other work on a small request. It needs a thread of its own: that of thread mode.
    """

    def __init__(
        self, options: BatchOptions, any_size: bool = False, lingers: bool = False, generation: str = ""
    ) -> None:
        self._options = options
        self._any_size = any_size
        self._generation = generation
        self._lingers = lingers and options.greedy_batching

    def open(self, runtime_context: RuntimeContext) -> None:
        """Start empty."""
        self._counts = Counts.of(self._generation, subtask_index(runtime_context))
        options = self._options
        self._batcher: Batcher[Request] = Batcher(options.max_batch_size, options.timeout_ms, self._note_closed)
        self._timer: int | None = None

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Iterator[list[Request]]:
        """Take one serialized `EntryBatch`."""
        read = EntryBatch.from_bytes(value)
        flow = find_flow_control(read.flow_id)
        if flow is None:
            yield from self._gather(read.entries or (), read.flow_id, read.more, FailingClients())
        else:
            entries = flow.take() if read.entries is None else read.entries
            yield from self._gather(entries, flow.id, flow.arrive(len(entries)) or read.more, flow.failing)
            yield from self._linger(flow)
            flow.give_back()
        self._set_timer(ctx)

    def _linger(self, flow: SlotFlowControl) -> Iterator[list[Request]]:
        """Take the next requests without Flink, unless they come so late that Flink has to have its turn."""
        end = time.monotonic() + _LONGEST_STAY
        # A timer would be late.
        while self._lingers and self._batcher.next_expiry() is None and (left := end - time.monotonic()) > 0:
            entries = flow.wait(min(left, _TIMEOUT))
            if entries is None:
                return
            yield from self._gather(entries, flow.id, flow.arrive(len(entries)), flow.failing)

    def _gather(
        self, entries: Sequence[Entry], flow_id: str, more: bool, failing: FailingClients
    ) -> Iterator[list[Request]]:
        for entry in entries:
            try:
                signature, inputs = entry.decode()
                request = Request(entry, flow_id, inputs)
                if entry.records:
                    signature = columns.of_record(signature, entry.record_count)
                    request = request._replace(part=0, rows=entry.record_count)
            except ServingError as error:
                yield [Request(entry, flow_id, {}, error)]
                continue
            if entry.one_by_one:
                yield from self._one_by_one(request)
                continue
            if self._any_size:
                signature = any_size(signature)
            key = signature, entry.client if failing and failing.sends_apart(entry.client, entry.record_count) else None
            yield from self._add(key, request)
        if not more and self._options.greedy_batching:
            for batch in self._batcher.flush():
                yield from self._ready(batch)

    def _one_by_one(self, request: Request) -> Iterator[list[Request]]:
        """Yield the records of an entry, each as a batch."""
        entry, flow = request.entry, find_flow_control(request.flow_id)
        late = flow.deadlines.expired([entry]).get(entry.place) if flow and flow.deadlines else None
        given_up = entry.given_up
        yield from ([single._replace(error=late or given_up.get(single.part))] for single in request.each())

    def _add(self, key: Hashable, request: Request) -> Iterator[list[Request]]:
        """Add a request to the batch of its key; one that is larger than the room there is cut."""
        now = time.time() * 1000
        rest: Request | None = request
        while rest is not None:
            request, rest = rest.cut(room) if rest.size > (room := self._batcher.room(key)) else (rest, None)
            full = self._batcher.add(key, request, now, request.size)
            if full is not None:
                yield from self._ready(full, key)

    def _note_closed(self, reason: str, since_ms: float) -> None:
        waited_us = max(0, int(1000 * (1000 * time.time() - since_ms)))
        self._counts.observe((GATHERING, waited_us, 1), also=((f"{CLOSED.name}:{reason}", 1),))

    def _ready(self, batch: list[Request], key: Hashable = None) -> Iterator[list[Request]]:
        """Yield the requests of a batch that have expired, and the others, which can be computed.

        With its key, the batch was full: then the others wait for requests that take the free places.
        """
        flow = find_flow_control(batch[0].flow_id)
        errors = flow.deadlines.expired(request.entry for request in batch) if flow and flow.deadlines else {}
        if not errors:
            yield batch
            return
        yield [request for request in with_errors(batch, errors) if request.error]
        others = [request for request in batch if request.entry.place not in errors]
        if key is None and others:
            yield others
            return
        for request in others:
            self._batcher.add(key, request, time.time() * 1000, request.size)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[list[Request]]:
        """Emit the batches that have waited long enough."""
        self._timer = None
        for batch in self._batcher.expire(timestamp):
            yield from self._ready(batch)
        self._set_timer(ctx)

    def _set_timer(self, ctx: KeyedProcessFunction.Context) -> None:
        # One timer at a time: each registration costs a call into Java.
        expiry = self._batcher.next_expiry()
        if expiry is not None and self._timer is None:
            self._timer = math.ceil(expiry)
            ctx.timer_service().register_processing_time_timer(self._timer)
