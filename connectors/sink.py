"""Redis hash sink: writes each result together with everything that makes its request answered."""

import time
from collections.abc import Iterable

from pyflink.datastream import FlatMapFunction, RuntimeContext

from cluster_serving.connectors.answer import AnsweredBatch, write_answers
from cluster_serving.connectors.attempts import noted
from cluster_serving.connectors.flow_control import find_flow_control
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.redis import Backoff, RedisClock, connect
from cluster_serving.connectors.reporting import StatsWriter
from cluster_serving.connectors.runtime import SelfClosing, count_records_out
from cluster_serving.connectors.shadow import Comparer, Keeper
from cluster_serving.protocol.dedicated import DedicatedConnection

NAME = "Redis hash sink"


class RedisHashSink(SelfClosing, FlatMapFunction):
    """Writer of answered batches; it emits nothing.

    While Redis is away the sink tries again, and its slot waits.
    """

    def __init__(self, options: RedisOptions) -> None:
        self._control = options
        self._options = options.queue

    def open(self, runtime_context: RuntimeContext) -> None:
        """Connect."""
        self._client = connect(self._options)
        self._writing = DedicatedConnection(self._client)
        metrics = runtime_context.get_metrics_group()
        self._requests = metrics.counter("requests")
        self._count_records_out = count_records_out(runtime_context)
        self._backoff = Backoff(f"{NAME} of {self._options.job}", metrics.counter("reconnects").inc)
        self._stats = StatsWriter(self._client, self._control, RedisClock(self._client))
        control = self._control
        self._beside = Comparer(self._client, control) if control.shadow else Keeper(self._client, control.job)
        self.close_with(self._stats.close, self._beside.close, self._writing.close, self._client.close)

    def flat_map(self, value: AnsweredBatch) -> Iterable[int]:
        """Write a batch of answers."""
        options, answers = self._options, value.answers
        started = time.monotonic()
        with noted(options, (answer.entry for answer in answers)):
            self._backoff.persist(
                lambda: write_answers(self._writing, options.job, options.result_ttl_s, answers, options.version)
            )
        for flow_id in {answer.flow_id for answer in answers}:
            if flow := find_flow_control(flow_id):
                flow.answer(sum(answer.flow_id == flow_id for answer in answers))
        self._requests.inc(len(answers))
        self._count_records_out(len(answers))
        write_us = round((time.monotonic() - started) * 1e6)
        self._stats.add(value, write_us)
        self._beside.add(value, write_us)
        return ()
