"""Options of the connectors."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """Options of the Redis that requests come from and results go to.

    Attributes:
        url: `redis://host:port/db` (or `rediss://`, or a `protocol.failover.FailoverUrl`); never logged, it may hold a
            password.
        job: `jobName`, from which all keys derive; in a Redis Cluster, also the node that has them.
        timeout_ms: Longest wait for one Redis answer, in milliseconds.
        result_ttl_s: Seconds that a result is kept.
        claim_idle_time_s: Seconds of silence after which a consumer counts as dead and its requests are claimed.
        max_request_bytes: Larger requests are answered with an error.
        max_deliveries: A request is given up when the process that computed it has died this often.
        max_queue_length: Most unanswered requests that clients may queue; 0 for no limit.
        payload_folder: Folder in which clients on the same machine leave large inputs; empty for none.
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
