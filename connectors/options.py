"""Options of the connectors."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeVar

from cluster_serving.protocol.keys import JobKeys

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """Options of the Redis that requests come from and results go to.

    Attributes:
        url: `redis://host:port/db` (or `rediss://`, or a `FailoverUrl`); never logged, it may hold a
            password.
        job: `jobName`, from which all keys derive; in a Redis Cluster, also the node that has them.
        timeout_ms: Longest wait for one Redis answer, in milliseconds.
        result_ttl_s: Seconds that a result is kept.
        claim_idle_time_s: Seconds of silence after which a consumer counts as dead and its requests are claimed.
        max_request_bytes: Larger requests are answered with an error.
        max_deliveries: A request is given up when the process that computed it has died this often.
        max_queue_length: Most unanswered requests that clients may queue; 0 for no limit.
        payload_folder: Folder in which clients on the same machine leave large inputs; empty for none.
        generation: Number of this generation of the job, from 1: each change of the job is a generation of its own.
        version: Version of the model, which results name.
        numbered: The version is that of the model's folder; otherwise it counts the starts and updates that
            succeeded.
        shadow: This generation computes copies of requests, whose answers are only compared
            (`connectors.stages.shadow`).
        stages: Keys of stages, by name; see `of_stage`.
    """

    url: str
    job: str = ""
    timeout_ms: int = 5000
    result_ttl_s: int = 3600
    claim_idle_time_s: int = 60
    max_request_bytes: int = 64 * 1024 * 1024
    max_deliveries: int = 3
    max_queue_length: int = 0
    payload_folder: str = ""
    generation: int = 1
    version: str = "1"
    numbered: bool = False
    shadow: bool = False
    stages: tuple[tuple[str, bool | float | str | tuple[str, ...]], ...] = ()

    @property
    def queue(self) -> RedisOptions:
        """Options of the queue whose requests this generation answers, in place of those of the job.

        A shadow has a queue of its own, with the copies. No answer is kept there, and inputs are not in files.
        """
        if not self.shadow:
            return self
        return replace(self, job=JobKeys(self.job).shadow(self.generation).job, result_ttl_s=0, payload_folder="")

    def of_stage(self, kind: type[T]) -> T:
        """Return the keys of a stage, a dataclass with their names as fields, and their defaults."""
        names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
        return kind(**{name: value for name, value in self.stages if name in names})

    @property
    def name(self) -> str:
        """Name of the generation: the slots of this generation alone have it in common."""
        return f"{self.job}-{self.generation}"
