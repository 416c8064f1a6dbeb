"""Scalars of a job for TensorBoard, by the names that the original gave them."""

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.periodic import Periodic
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.slot.stage import AnswerStage
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.stats import JobStats
from cluster_serving.protocol.keys import JobKeys

THROUGHPUT, TOTAL = "Serving Throughput", "Total Records Number"

_INTERVAL_S = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Keys:
    """Key of TensorBoard.

    Attributes:
        tensorboard: Folder with a folder for each job; empty for none.
    """

    tensorboard: str = ""


class TensorBoard(Periodic, AnswerStage):
    """Writes records per second and number of records of the job, while records are answered.

    The steps are the numbers of records, which go on when the job is started again.
    """

    def __init__(self, client: redis.Redis, options: RedisOptions) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self._keys = JobKeys(options.job)
        folder = options.of_stage(Keys).tensorboard
        self._folder = f"{folder}/{options.job}"
        self._at, self._last = time.monotonic(), 0
        self._last = self._records()
        self._writer: Any = None
        self.begin_periodic("tensorboard", folder, _INTERVAL_S)

    def close(self) -> None:
        """Close the file."""
        self.end_periodic()

    def begin(self) -> bool:
        """Make the file; return False if that is not possible."""
        try:
            # Other writers of the package queue in processes of their own.
            from tensorboardX.event_file_writer import EventsWriter

            os.makedirs(self._folder, exist_ok=True)
            # TensorBoard reads files in the order of their names.
            self._writer = EventsWriter(f"{self._folder}/events", f".{time.time_ns()}")
        except ImportError as error:
            log.warning("TensorBoard: %s; pip install 'cluster-serving[tensorboard]'", error)
        except OSError as error:
            self._failed(error)
        return self._writer is not None

    def work(self) -> bool:
        """Write what has been answered since the last time."""
        if self._writer is None:
            return True
        now, total = time.monotonic(), self._records()
        if total > self._last:
            values = {THROUGHPUT: (total - self._last) / (now - self._at), TOTAL: total}
            try:
                self._write(values)
            except OSError as error:
                self._failed(error)
        self._at, self._last = now, total
        return True

    def end(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()

    def _write(self, values: Mapping[str, float]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        event = Event(step=int(values[TOTAL]), wall_time=time.time(), summary=Summary(value=scalars))
        self._writer.write_event(event)
        self._writer.flush()

    def _failed(self, error: OSError) -> None:
        log.warning("TensorBoard: nothing is written in %s: %s", self._folder, error)
        self._writer = None

    def _records(self) -> int:
        """Return the number of records; that of the last time if Redis does not answer."""
        try:
            return JobStats.read(self._client.hgetall(self._keys.stats())).requests
        except (RedisError, OSError):
            return self._last


def answers(client: redis.Redis, options: RedisOptions, clock: RedisClock, counts: Counts) -> AnswerStage:
    """Return the stage of a sink; that of the first slot writes, if the job asks for it."""
    writes = options.of_stage(Keys).tensorboard and not options.shadow and counts.slot == 0
    return TensorBoard(client, options) if writes else AnswerStage(client, options, clock, counts)
