"""Redis hash sink: writes each result together with everything that makes its request answered."""

import time
from collections.abc import Iterable, Sequence

from pyflink.datastream import FlatMapFunction, RuntimeContext

from cluster_serving.connectors.flink.runtime import SelfClosing, count_records_out, subtask_index
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import AnsweredBatch, write_answers
from cluster_serving.connectors.slot.attempts import noted
from cluster_serving.connectors.slot.redis import Backoff, RedisClock, connect
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.connectors.slot.stage import MakeAnswerStage
from cluster_serving.protocol.dedicated import DedicatedConnection

NAME = "Redis hash sink"


class RedisHashSink(SelfClosing, FlatMapFunction):
    """Writer of answered batches; it emits nothing.

    While Redis is away the sink tries again, and its slot waits.

    Args:
        options: Redis, job and generation of the slot.
        stages: What makes the stages of the slot, in their order.
    """

    def __init__(self, options: RedisOptions, stages: Sequence[MakeAnswerStage] = ()) -> None:
        self._control = options
        self._options = options.queue
        self._make_stages = stages

    def open(self, runtime_context: RuntimeContext) -> None:
        """Connect."""
        self._client = connect(self._options)
        self._writing = DedicatedConnection(self._client)
        metrics = runtime_context.get_metrics_group()
        self._requests = metrics.counter("requests")
        self._count_records_out = count_records_out(runtime_context)
        self._shared = SharedSlot.of(self._control.name, subtask_index(runtime_context))
        counts = self._shared.counts
        self._backoff = Backoff(f"{NAME} of {self._options.job}", metrics.counter("reconnects").inc, counts)
        clock = RedisClock(self._client)
        self._stages = [make(self._client, self._control, clock, counts) for make in self._make_stages]
        self.close_with(*(stage.close for stage in self._stages), self._writing.close, self._client.close)

    def flat_map(self, value: AnsweredBatch) -> Iterable[int]:
        """Write a batch of answers."""
        for stage in self._stages:
            value = stage.answering(value)
        options, answers = self._options, value.answers
        started = time.monotonic()
        with noted(options, (answer.entry for answer in answers)):
            self._backoff.persist(
                lambda: write_answers(self._writing, options.job, options.result_ttl_s, answers, options.version)
            )
        if value.flow is not None:
            value.flow.answer(len(answers))
        self._requests.inc(len(answers))
        self._count_records_out(len(answers))
        write_us = round((time.monotonic() - started) * 1e6)
        for stage in self._stages:
            stage.answered(value, write_us)
        return ()
