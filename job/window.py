"""Batching window: the Flink function around `job.batcher`."""

import math
import time
from collections.abc import Iterator

from pyflink.datastream import KeyedProcessFunction, RuntimeContext

from cluster_serving.connectors.entry_batch import EntryBatch
from cluster_serving.connectors.flow_control import find_flow_control
from cluster_serving.job.batcher import Batcher
from cluster_serving.job.options import BatchOptions
from cluster_serving.job.request import Request
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.signature import any_size

NAME = "Batching window"


class BatchingWindow(KeyedProcessFunction):
    """Decoder of requests, which are emitted in batches of one signature.

    The key leads to the slot of the source, so each slot has its window. Requests are held in memory, not in Flink
    state: until they are answered they are pending in Redis, which delivers them again after a failure.

    With `any_size`, requests that only differ in the sizes of their inputs share a batch (`padding`).
    """

    def __init__(self, options: BatchOptions, any_size: bool = False) -> None:
        self._options = options
        self._any_size = any_size

    def open(self, runtime_context: RuntimeContext) -> None:
        """Start empty."""
        self._batcher: Batcher[Request] = Batcher(self._options.max_batch_size, self._options.timeout_ms)
        self._timer: int | None = None

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Iterator[list[Request]]:
        """Take one serialized `EntryBatch`."""
        read = EntryBatch.from_bytes(value)
        entries, more = read.entries or (), read.more
        if flow := find_flow_control(read.flow_id):
            if read.entries is None:
                entries = flow.take()
            more = flow.arrive(len(entries)) or more
        for entry in entries:
            try:
                signature, inputs = entry.decode()
            except ServingError as error:
                yield [Request(entry, read.flow_id, {}, error)]
                continue
            if self._any_size:
                signature = any_size(signature)
            full = self._batcher.add(signature, Request(entry, read.flow_id, inputs), time.time() * 1000)
            if full is not None:
                yield full
        if not more and self._options.greedy_batching:
            yield from self._batcher.flush()
        self._set_timer(ctx)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[list[Request]]:
        """Emit the batches that have waited long enough."""
        self._timer = None
        yield from self._batcher.expire(timestamp)
        self._set_timer(ctx)

    def _set_timer(self, ctx: KeyedProcessFunction.Context) -> None:
        # One timer at a time: each registration costs a call into Java.
        expiry = self._batcher.next_expiry()
        if expiry is not None and self._timer is None:
            self._timer = math.ceil(expiry)
            ctx.timer_service().register_processing_time_timer(self._timer)
