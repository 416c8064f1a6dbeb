"""Batching window: the Flink function around `job.gathering`."""

import math
from collections.abc import Iterator

from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from cluster_serving.connectors.flink.entry_batch import EntryBatch
from cluster_serving.connectors.flink.runtime import subtask_index
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.job.gathering import Gathering
from cluster_serving.job.options import BatchOptions
from cluster_serving.job.request import GatheredBatch


class BatchingWindow(KeyedProcessFunction):
    """Gatherer of the requests of a slot, which are emitted in batches of one signature (`job.gathering.Gathering`).

    The key leads to the slot of the source, so each slot has its window. `generation` is the name of the slot's
    generation; see `Gathering` for the other arguments.
    """

    def __init__(
        self, options: BatchOptions, any_size: bool = False, lingers: bool = False, generation: str = ""
    ) -> None:
        self._options = options
        self._any_size = any_size
        self._lingers = lingers
        self._generation = generation

    def open(self, runtime_context: RuntimeContext) -> None:
        """Start empty."""
        self._shared = SharedSlot.of(self._generation, subtask_index(runtime_context))
        self._gathering = Gathering(self._options, self._shared.counts, self._any_size, self._lingers)
        self._flow_id = ""
        self._timer: int | None = None

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Iterator[GatheredBatch]:
        """Take one serialized `EntryBatch`."""
        read = EntryBatch.from_bytes(value)
        # The window may have opened before its source.
        if read.flow_id != self._flow_id:
            self._flow_id, self._gathering.flow = read.flow_id, self._shared.flow(read.flow_id)
        yield from self._gathering.take(read.entries, read.more)
        self._set_timer(ctx)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[GatheredBatch]:
        """Emit the batches that have waited long enough."""
        self._timer = None
        yield from self._gathering.expire(timestamp)
        self._set_timer(ctx)

    def _set_timer(self, ctx: KeyedProcessFunction.Context) -> None:
        # One timer at a time: each registration costs a call into Java.
        expiry = self._gathering.next_expiry()
        if expiry is not None and self._timer is None:
            self._timer = math.ceil(expiry)
            ctx.timer_service().register_processing_time_timer(self._timer)
