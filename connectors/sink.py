"""Redis hash sink: writes results, and with each result everything that makes the request answered."""

from __future__ import annotations

from collections.abc import Iterable

from pyflink.datastream import FlatMapFunction, RuntimeContext

from cluster_serving.connectors.answer import Answer, write_answers
from cluster_serving.connectors.attempts import noted
from cluster_serving.connectors.lane import find
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.reconnect import Backoff, connect
from cluster_serving.connectors.runtime import records_out

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

    def open(self, runtime_context: RuntimeContext) -> None:
        """Connect."""
        self._client = connect(self._options)
        metrics = runtime_context.get_metrics_group()
        self._requests = metrics.counter("requests")
        self._records_out = records_out(runtime_context)
        self._backoff = Backoff(f"{NAME} of {self._job}", metrics.counter("reconnects").inc)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def flat_map(self, value: list[Answer]) -> Iterable[int]:
        """Write a batch of answers."""
        with noted(self._options, self._job, (answer.entry for answer in value)):
            self._backoff.persist(lambda: write_answers(self._client, self._job, self._options.result_ttl_s, value))
        for lane_id in {answer.lane_id for answer in value}:
            if lane := find(lane_id):
                lane.answer(sum(answer.lane_id == lane_id for answer in value))
        self._requests.inc(len(value))
        self._records_out.inc(len(value))
        return ()
