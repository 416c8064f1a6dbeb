"""What the configuration of a job means for its clients: the Redis hash `<jobName>:limits`, which scripts read."""

RESULT_TTL = "resultTtl"
"""Field: seconds that results are kept."""

MAX_QUEUE_LENGTH = "maxQueueLength"
"""Field: most unanswered requests; missing if there is no limit."""


PAYLOAD_FOLDER = "payloadFolder"
"""Field: folder for large inputs of clients on the same machine; missing if there is none."""


def limits_key(job: str) -> str:
    """Redis hash that holds the limits of a job; written when it starts."""
    return f"{job}:limits"
