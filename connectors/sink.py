"""Redis hash sink: writes results, and with each result everything that makes the request answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from pyflink.datastream import FlatMapFunction, RuntimeContext

from cluster_serving.connectors.answer import Answered, write_answers
from cluster_serving.connectors.attempts import noted
from cluster_serving.connectors.flow_control import find
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.reconnect import Backoff, connect
from cluster_serving.connectors.redis_clock import RedisClock
from cluster_serving.connectors.runtime import closing, nothing, records_out
from cluster_serving.connectors.stats import StatsWriter

NAME = "Redis hash sink"


class RedisHashSink(FlatMapFunction):
    """Writes a batch of answers; nothing follows it, so it emits nothing.

    While Redis is away the sink tries again, and its slot waits.

    Args:
        options: Where Redis is, and how long results are kept.
        job: `jobName`: stream and prefix of the result keys.
    """

    def __init__(self, options: RedisOptions, job: str) -> None:
        self._options = options
        self._job = job
        self._close: Callable[[], object] = nothing

    def open(self, runtime_context: RuntimeContext) -> None:
        """Connect."""
        self._client = connect(self._options)
        metrics = runtime_context.get_metrics_group()
        self._requests = metrics.counter("requests")
        self._records_out = records_out(runtime_context)
        self._backoff = Backoff(f"{NAME} of {self._job}", metrics.counter("reconnects").inc)
        self._stats = StatsWriter(self._client, self._job, RedisClock(self._client))
        self._close = closing(self, self._stats.close, self._client.close)

    def close(self) -> None:
        """Disconnect."""
        self._close()

    def flat_map(self, value: Answered) -> Iterable[int]:
        """Write a batch of answers."""
        answers = value.answers
        started = time.monotonic()
        with noted(self._options, self._job, (answer.entry for answer in answers)):
            self._backoff.persist(lambda: write_answers(self._client, self._job, self._options.result_ttl_s, answers))
        for lane_id in {answer.lane_id for answer in answers}:
            if lane := find(lane_id):
                lane.answer(sum(answer.lane_id == lane_id for answer in answers))
        self._requests.inc(len(answers))
        self._records_out.inc(len(answers))
        self._stats.add(value, write_us=round((time.monotonic() - started) * 1e6))
        return ()
