"""The secret of an encrypted model: the Redis hash `model_secured`, as the original keeps it."""

from __future__ import annotations

import time

import redis

from cluster_serving.client.protocol import MODEL_SECRET_KEY

_INTERVAL = 1.0


def secret_key(job: str) -> str:
    """Hash with the fields `secret` and `salt`; it is for all jobs of a Redis, as in the original.

    In a Redis Cluster it has to lie with the job's keys: a job whose name has braces has its own.
    """
    return f"{job}:{MODEL_SECRET_KEY}" if job.startswith("{") else MODEL_SECRET_KEY


def wait_for_secret(client: redis.Redis, job: str, patience: float) -> tuple[str, str] | None:
    """Wait until an operator has stored the secret and the salt.

    Args:
        client: Connection to the job's Redis.
        job: `jobName`.
        patience: Seconds to wait.

    Returns:
        Secret and salt; None if they were not stored in time.

    Raises:
        redis.RedisError: Redis cannot be used.
    """
    deadline = time.monotonic() + patience
    while True:
        # redis-py types its commands as if they might be awaitable.
        secret, salt = client.hmget(secret_key(job), ["secret", "salt"])  # type: ignore[misc]
        if secret and salt:
            return secret.decode(), salt.decode()
        if time.monotonic() >= deadline:
            return None
        time.sleep(_INTERVAL)
