"""Writes what a task slot reports of itself; `client.slots` says what for."""

from __future__ import annotations

import time
from dataclasses import replace

import redis
from redis.exceptions import RedisError

from cluster_serving.client.errors import ServingError
from cluster_serving.client.protocol import slots_key
from cluster_serving.client.slots import JOBS_KEY, SlotReport


class SlotReporter:
    """Writes the reports of one slot; a report that Redis does not take is not worth failing for."""

    def __init__(self, client: redis.Redis, job: str, submission: str, subtask: int) -> None:
        self._client = client
        self._job = job
        self._submission = submission
        self._subtask = subtask

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
        try:
            self._client.sadd(JOBS_KEY, self._job)
            text = replace(report, time=time.time(), index=self._subtask).to_json()
            self._client.hset(slots_key(self._job), str(self._subtask), text)
        except RedisError:
            return
