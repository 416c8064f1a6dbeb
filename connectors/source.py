"""Redis Streams source: a JVM tick source, and a Python function that reads at each tick (`connectors.slot.reading`).

PyFlink has no source API for Python. Each tick causes reads for a bounded time; between ticks Flink handles
cancellation, barriers and metrics. An endless loop in Python would starve them.
"""

from collections.abc import Callable, Iterator

from pyflink.datastream import FlatMapFunction, RuntimeContext

from cluster_serving.connectors.flink.entry_batch import EntryBatch
from cluster_serving.connectors.flink.runtime import (
    SelfClosing,
    cancellation,
    count_records_out,
    subtask_count,
    subtask_index,
)
from cluster_serving.connectors.flink.slot_keys import SlotKeys
from cluster_serving.connectors.slot.reading import Reading, ReadingOptions
from cluster_serving.connectors.slot.shared import SharedSlot


class RedisStreamsSource(SelfClosing, FlatMapFunction):
    """Reader of requests, which are emitted as serialized entry batches.

    Args:
        options: Redis, job and mode of the slots.
        slot_keys: Keys that lead from a source subtask to the window subtask of the same index.
        record_end: Lets the process record its end, and returns the path of the record; None to record nothing.
    """

    def __init__(
        self, options: ReadingOptions, slot_keys: SlotKeys, record_end: Callable[[], str] | None = None
    ) -> None:
        self._options = options
        self._record_end = record_end
        self._slot_keys = slot_keys

    def open(self, runtime_context: RuntimeContext) -> None:
        """Connect; nothing is read yet."""
        end = self._record_end() if self._record_end else ""
        index, parallelism = subtask_index(runtime_context), subtask_count(runtime_context)
        self._slot_key = self._slot_keys.key_of(index, parallelism)
        metrics = runtime_context.get_metrics_group()
        shared = SharedSlot.of(self._options.redis.name, index)
        self._reading = Reading(self._options, shared, parallelism, metrics, end, cancellation())
        self.close_with(self._reading.close)
        self._requests = metrics.counter("requests")
        self._count_records_out = count_records_out(runtime_context)
        self._counted = 0

    def flat_map(self, value: int) -> Iterator[bytes]:
        """Read for a bounded time; `value` is the number of the tick and is not used."""
        emitted = 0
        for handed_over in self._reading.tick():
            emitted += 1
            yield EntryBatch(self._slot_key, handed_over.more, self._reading.flow.id, handed_over.entries).to_bytes()
        # Objects of Java are for this thread alone, and a call of them costs as much as a small read.
        read = self._reading.requests - self._counted
        self._counted += read
        if read:
            self._requests.inc(read)
        # Flink counts by itself what this function emits.
        if read > emitted:
            self._count_records_out(read - emitted)
