"""Writes what a task slot reports of itself; `protocol.slots` says what for."""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import replace

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.hashes import put
from cluster_serving.connectors.reconnect import Backoff
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import JOBS_KEY, slots_key
from cluster_serving.protocol.scripts import PUT_MEMBER, Call, call
from cluster_serving.protocol.slots import SlotReport

log = logging.getLogger(__name__)


class SlotReporter:
    """Writes the reports of one slot; a report that Redis does not take in the end is not worth failing for."""

    def __init__(self, client: redis.Redis, job: str, submission: str, subtask: int) -> None:
        self._client = client
        self._job = job
        self._submission = submission
        self._subtask = subtask
        self._backoff = Backoff(f"slot {subtask} of job {job}", lambda: None)

    def loading(self) -> None:
        """The slot has begun to load its model."""
        self._write(SlotReport(self._submission, "loading"))

    def ready(self, report: SlotReport) -> None:
        """The model is loaded and warm.

        Args:
            report: What the model is; which slot and start it belongs to is filled in.
        """
        self._write(replace(report, submission=self._submission, state="ready"))

    def failed(self, error: ServingError) -> None:
        """The model cannot be loaded."""
        self._write(SlotReport(self._submission, "failed", code=error.code, error=str(error)))

    def _write(self, report: SlotReport) -> None:
        text = replace(report, time=time.time(), index=self._subtask).to_json()
        try:
            self._backoff.persist(lambda: put(self._client, slots_key(self._job), {str(self._subtask): text}))
        except RedisError as error:
            log.warning(
                "slot %d of job %s cannot report that it is %s: %s", self._subtask, self._job, report.state, error
            )
        # In a Redis Cluster this key may be on another node, and jobs are found by their names alone.
        with contextlib.suppress(RedisError):
            call(self._client, Call(PUT_MEMBER, [JOBS_KEY], [self._job]))
