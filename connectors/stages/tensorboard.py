"""Scalars of a job for TensorBoard, by the names that the original gave them."""

import logging
import os
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.connectors.slot.stage import AnswerStage
from cluster_serving.protocol.counts import Counts
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.stats import JobStats

THROUGHPUT, TOTAL = "Serving Throughput", "Total Records Number"

_INTERVAL_S = 2.0
_CLOSE_TIMEOUT = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Keys:
    """Key of TensorBoard.

    Attributes:
        tensorboard: Folder with a folder for each job; empty for none.
    """

    tensorboard: str = ""


class TensorBoard(AnswerStage):
    """A thread that writes records per second and number of records of the job, while records are answered.

    The steps are the numbers of records, which go on when the job is started again.
    """

    def __init__(self, client: redis.Redis, options: RedisOptions) -> None:
        # redis-py types its commands as if they might be awaitable.
        self._client: Any = client
        self._keys = JobKeys(options.job)
        self._folder = f"{options.of_stage(Keys).tensorboard}/{options.job}"
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tensorboard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join(_CLOSE_TIMEOUT)

    def _run(self) -> None:
        try:
            self._write()
        except ImportError as error:
            log.warning("TensorBoard: %s; pip install 'cluster-serving[tensorboard]'", error)
        except OSError as error:
            log.warning("TensorBoard: nothing is written in %s: %s", self._folder, error)

    def _write(self) -> None:
        at, records = time.monotonic(), self._records(0)
        # Other writers of the package queue in processes of their own.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        os.makedirs(self._folder, exist_ok=True)
        # TensorBoard reads files in the order of their names.
        with closing(EventsWriter(f"{self._folder}/events", f".{time.time_ns()}")) as writer:
            while not self._closed.wait(_INTERVAL_S):
                now, total = time.monotonic(), self._records(records)
                if total > records:
                    values = {THROUGHPUT: (total - records) / (now - at), TOTAL: total}
                    scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
                    writer.write_event(Event(step=total, wall_time=time.time(), summary=Summary(value=scalars)))
                    writer.flush()
                at, records = now, total

    def _records(self, last: int) -> int:
        """Return the number of records; that of the last time if Redis does not answer."""
        try:
            return JobStats.read(self._client.hgetall(self._keys.stats())).requests
        except (RedisError, OSError):
            return last


def answers(client: redis.Redis, options: RedisOptions, clock: RedisClock, counts: Counts) -> AnswerStage:
    """Return the stage of a sink; that of the first slot writes, if the job asks for it."""
    writes = options.of_stage(Keys).tensorboard and not options.shadow and counts.slot == 0
    return TensorBoard(client, options) if writes else AnswerStage(client, options, clock, counts)
