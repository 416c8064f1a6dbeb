"""How each task slot says whether its model is loaded: one field of the Redis hash `<jobName>:slots`.

Flink calls a task RUNNING before the operators of process mode are open, so its state alone does not say that requests
will be answered. The launcher waits for these reports; operators read them.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass

import redis
from redis.exceptions import RedisError

from cluster_serving.client.errors import ServingError
from cluster_serving.client.protocol import slots_key


@dataclass(frozen=True, slots=True)
class SlotReport:
    """State of one slot.

    Attributes:
        submission: Which start of the job this slot belongs to.
        state: `loading`, `ready` or `failed`.
        model: What the loaded model expects and gives, for people.
        code: Code of the error that kept the model from loading.
        error: Its message.
        time: Seconds since the epoch.
    """

    submission: str
    state: str
    model: str | None = None
    code: str | None = None
    error: str | None = None
    time: float = 0.0


class SlotReporter:
    """Writes the reports of one slot; a report that Redis does not take is not worth failing for."""

    def __init__(self, client: redis.Redis, job: str, submission: str, subtask: int) -> None:
        self._client = client
        self._key = slots_key(job)
        self._submission = submission
        self._subtask = subtask

    def loading(self) -> None:
        """The slot has begun to load its model."""
        self._write(SlotReport(self._submission, "loading"))

    def ready(self, model: str) -> None:
        """The model is loaded and warm."""
        self._write(SlotReport(self._submission, "ready", model=model))

    def failed(self, error: ServingError) -> None:
        """The model cannot be loaded."""
        self._write(SlotReport(self._submission, "failed", code=error.code, error=str(error)))

    def _write(self, report: SlotReport) -> None:
        try:
            self._client.hset(self._key, str(self._subtask), json.dumps(asdict(report) | {"time": time.time()}))
        except RedisError:
            return
