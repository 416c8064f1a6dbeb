"""Redis hash sink: the Flink function around `connectors.slot.answering`."""

from collections.abc import Iterable, Sequence

from pyflink.datastream import FlatMapFunction, RuntimeContext

from cluster_serving.connectors.flink.runtime import SelfClosing, count_records_out, subtask_index
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import AnsweredBatch
from cluster_serving.connectors.slot.answering import Answering
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.connectors.slot.stage import MakeAnswerStage


class RedisHashSink(SelfClosing, FlatMapFunction):
    """Writer of answered batches, each result together with everything that makes its request answered.

    It emits nothing; see `Answering` for the arguments.
    """

    def __init__(self, options: RedisOptions, stages: Sequence[MakeAnswerStage] = ()) -> None:
        self._options = options
        self._stages = stages

    def open(self, runtime_context: RuntimeContext) -> None:
        """Connect."""
        metrics = runtime_context.get_metrics_group()
        shared = SharedSlot.of(self._options.name, subtask_index(runtime_context))
        self._answering = Answering(self._options, self._stages, shared, metrics)
        self.close_with(self._answering.close)
        self._requests = metrics.counter("requests")
        self._count_records_out = count_records_out(runtime_context)

    def flat_map(self, value: AnsweredBatch) -> Iterable[int]:
        """Write a batch of answers."""
        self._answering.write(value)
        self._requests.inc(len(value.answers))
        self._count_records_out(len(value.answers))
        return ()
