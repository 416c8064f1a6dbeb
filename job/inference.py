"""Inference: the Flink function around a model, with one copy of the model per task slot."""

from collections.abc import Callable, Iterator, Sequence

from pyflink.datastream import FlatMapFunction, RuntimeContext

from cluster_serving.connectors.flink.runtime import SelfClosing, attempt_number, subtask_index
from cluster_serving.connectors.slot.answer import AnsweredBatch
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.job.computing import Computing, MakeSearch
from cluster_serving.job.options import JobOptions
from cluster_serving.job.request import GatheredBatch
from cluster_serving.job.slot_model import SlotModel
from cluster_serving.job.slot_part import MakePart


class Inference(SelfClosing, FlatMapFunction):
    """Runner of batches through the model; it reports the state of its slot.

    `parts` are those of `SlotModel`, `record_end` is that of `RedisStreamsSource`, and `search` that of `Computing`.
    """

    def __init__(
        self,
        options: JobOptions,
        parts: Sequence[MakePart] = (),
        record_end: Callable[[], str] | None = None,
        search: MakeSearch | None = None,
    ) -> None:
        self._options = options
        self._parts = parts
        self._record_end = record_end
        self._search = search

    def open(self, runtime_context: RuntimeContext) -> None:
        """Load the model, once per task slot; if that fails, the launcher shows the error and cancels the job."""
        options = self._options
        end = self._record_end() if self._record_end else ""
        shared = SharedSlot.of(options.redis.name, subtask_index(runtime_context))
        self._model = SlotModel(options, shared, self._parts, first_attempt=not attempt_number(runtime_context))
        self.close_with(self._model.close)
        metrics = runtime_context.get_metrics_group()
        model = self._model
        self._computing = Computing(options, model.predictor, model.client, metrics, end, self._search)

    def flat_map(self, value: GatheredBatch) -> Iterator[AnsweredBatch]:
        """Answer one batch; its answers may come with those of the next one (`Computing.answer`)."""
        for answers in self._computing.answer(value):
            yield answers
            self._model.report_changes()
        self._model.report_changes()
        self._model.check(self._computing.computed_s)
