"""The four functions of the data path of a job that serves several models.

The window reads, by itself and in its own thread: requests are then computed where they are read, and no model waits
for a thread that reads for another one. The source gives it its turns, so that Flink can cancel the slot, and update
metrics, between them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from pyflink.datastream import FlatMapFunction, KeyedProcessFunction, RuntimeContext

from cluster_serving.connectors.flink.entry_batch import EntryBatch
from cluster_serving.connectors.flink.runtime import (
    SelfClosing,
    attempt_number,
    cancellation,
    count_records_out,
    subtask_count,
    subtask_index,
)
from cluster_serving.connectors.flink.slot_keys import SlotKeys
from cluster_serving.connectors.slot.answer import AnsweredBatch
from cluster_serving.connectors.slot.answering import Answering
from cluster_serving.connectors.slot.peers import HEARTBEAT_S
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.connectors.slot.stage import MakeAnswerStage, MakeStage
from cluster_serving.connectors.slot.worker import record_end
from cluster_serving.job.hosting.beats import Beats
from cluster_serving.job.hosting.changes import Changes
from cluster_serving.job.hosting.models import HostedModels
from cluster_serving.job.hosting.serving import Serving
from cluster_serving.job.hosting.table import Table, Turn
from cluster_serving.job.options import JobOptions, RedisOptions
from cluster_serving.job.request import GatheredBatch

_LOOK_S, _LOOKS = 0.2, 25
_BUSY_LOOK_S = 0.05


def _table(options: JobOptions, context: RuntimeContext) -> Table:
    end = record_end() if options.execution_mode == "process" else ""
    return Table.of(options.redis.name, subtask_index(context), attempt_number(context), end)


class TurnSource(SelfClosing, FlatMapFunction):
    """Source of the turns of the window."""

    def __init__(self, options: JobOptions, slot_keys: SlotKeys) -> None:
        self._options = options
        self._slot_keys = slot_keys

    def open(self, runtime_context: RuntimeContext) -> None:
        """Begin with a turn."""
        index = subtask_index(runtime_context)
        key = self._slot_keys.key_of(index, subtask_count(runtime_context))
        self._record = EntryBatch(key, more=False, flow_id="", entries=None).to_bytes()
        self._shared = SharedSlot.of(self._options.redis.name, index)
        self._turn = Turn.of(self._options.redis.name, index)
        self._turn.has_source = True
        self._turn.is_due.set()
        self._is_cancelled = cancellation()
        self._table = _table(self._options, runtime_context)
        self._beats: Beats | None = None
        if self._options.model_parallelism > 1:
            self._beats = Beats(self._options, index)
            self.close_with(self._beats.close)

    def flat_map(self, value: int) -> Iterator[bytes]:
        """Wait for a bounded time until the next turn is due; `value` is the number of the tick and is not used."""
        for _ in range(_LOOKS):
            self._shared.ticks.note()
            if self._turn.is_due.wait(self._beat()):
                self._turn.is_due.clear()
                yield self._record
                return
            if self._is_cancelled():
                return

    def _beat(self) -> float:
        """Give a sign of life, and leave what waits behind a long batch to others; return seconds until the next."""
        models, serving = self._table.models, self._table.serving
        if not (self._beats and models and serving):
            return _LOOK_S
        self._beats.give([*models.queues], serving.is_idle)
        serving.leave()
        return HEARTBEAT_S if serving.is_idle else _BUSY_LOOK_S


class HostingWindow(SelfClosing, KeyedProcessFunction):
    """Reader and gatherer of the requests of all models."""

    def __init__(self, options: JobOptions, stages: Sequence[MakeStage]) -> None:
        self._options = options
        self._stages = stages

    def open(self, runtime_context: RuntimeContext) -> None:
        """Nothing is read before the first turn, when the models are loaded."""
        self._table = _table(self._options, runtime_context)
        self._turn = Turn.of(self._options.redis.name, self._table.shared.index)
        self._metrics = self._table.once(runtime_context.get_metrics_group())
        self._is_cancelled = cancellation()

    def process_element(self, value: bytes, ctx: KeyedProcessFunction.Context) -> Iterator[GatheredBatch]:
        """Take a turn."""
        table = self._table
        if table.serving is None:
            if table.models is None or not self._turn.has_source:
                raise RuntimeError("the source, the window and the models of a slot are in different processes")
            table.serving = Serving(
                *(self._options, table.shared, table.models, self._stages, self._metrics, table.end),
                self._is_cancelled,
            )
            self.close_with(table.serving.close)
        try:
            yield from table.serving.turn()
        finally:
            self._turn.is_due.set()


class HostingInference(SelfClosing, FlatMapFunction):
    """Runner of batches through their models; it reports the state of its slot."""

    def __init__(self, options: JobOptions) -> None:
        self._options = options

    def open(self, runtime_context: RuntimeContext) -> None:
        """Load the models; if none can be loaded, the launcher shows an error and cancels the job."""
        self._table = _table(self._options, runtime_context)
        metrics, attempt = self._table.once(runtime_context.get_metrics_group()), attempt_number(runtime_context)
        shared, end = self._table.shared, self._table.end
        self._models = HostedModels(self._options, shared, metrics, end, first_attempt=not attempt)
        self._table.models = self._models
        changes = Changes(self._options, self._models)
        self.close_with(changes.close, self._models.close)

    def flat_map(self, value: GatheredBatch) -> Iterator[AnsweredBatch]:
        """Answer one batch."""
        serving = self._table.serving
        if serving is None or value.flow is None:
            return
        name = serving.names[value.flow.id]
        yield from self._models.queues[name].answer(value)
        self._models.check(name)


class HostingSink(SelfClosing, FlatMapFunction):
    """Writer of answered batches."""

    def __init__(self, options: JobOptions, stages: Sequence[MakeAnswerStage]) -> None:
        self._options = options
        self._stages = stages

    def open(self, runtime_context: RuntimeContext) -> None:
        """All models share the connections of the job, whose writer also writes figures of the process."""
        self._table = _table(self._options, runtime_context)
        self._metrics = self._table.once(runtime_context.get_metrics_group())
        self._of_job = Answering(self._options.redis, self._stages, self._table.shared, self._metrics)
        self._requests = self._metrics.counter("requests")
        self._count_records_out = count_records_out(runtime_context)
        self._answering: dict[str, tuple[RedisOptions, Answering]] = {}
        self.close_with(partial(_close, self._answering), self._of_job.close)

    def flat_map(self, value: AnsweredBatch) -> Iterable[int]:
        """Write a batch of answers."""
        serving, models = self._table.serving, self._table.models
        if serving is None or models is None or value.flow is None:
            return ()
        name = serving.names[value.flow.id]
        model = models.queues[name]
        redis, answering = self._answering.get(name, (None, None))
        if answering is None or redis != model.options.redis:
            if answering is not None:
                # The model has changed.
                answering.close()
            answering = Answering(model.options.redis, self._stages, model.shared, self._metrics, self._of_job)
            self._answering[name] = model.options.redis, answering
        answering.write(value)
        self._requests.inc(len(value.answers))
        self._count_records_out(len(value.answers))
        return ()


def _close(answering: Mapping[str, tuple[RedisOptions, Answering]]) -> None:
    with ExitStack() as closing:
        for _, one in answering.values():
            closing.callback(one.close)
