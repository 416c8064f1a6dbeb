"""What source and sink need to know of Redis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """Where requests come from and results go.

    Attributes:
        url: `redis://host:port/db` (or `rediss://`, or a `protocol.failover.FailoverUrl`); never logged, it may hold a
            password.
        job: `jobName`; where its keys are, in a Redis Cluster.
        timeout_ms: Longest wait for one Redis answer, in milliseconds.
        result_ttl_s: Seconds that a result is kept.
        claim_idle_ms: A consumer silent for this long is taken for dead and its pending requests are claimed.
        max_request_bytes: Larger requests are answered with an error.
        max_queue_length: Most unanswered requests that clients may queue; 0 for no limit.
        payload_folder: Where clients on the same machine leave large inputs; empty if nowhere.
        max_deliveries: A request is given up when the process that computed it has died this often.
    """

    url: str
    job: str = ""
    timeout_ms: int = 5000
    result_ttl_s: int = 3600
    claim_idle_ms: int = 60_000
    max_request_bytes: int = 64 * 1024 * 1024
    max_deliveries: int = 3
    max_queue_length: int = 0
    payload_folder: str = ""
