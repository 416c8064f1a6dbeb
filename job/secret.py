"""Secret of an encrypted model, from the Redis hash `model_secured`, as in the original."""

from __future__ import annotations

import time

import redis

from cluster_serving.protocol.keys import secret_key

_INTERVAL = 1.0


def wait_for_secret(client: redis.Redis, job: str, patience: float) -> tuple[str, str] | None:
    """Wait until an operator has stored secret and salt.

    Args:
        client: Connection to the job's Redis.
        job: `jobName`.
        patience: Seconds to wait.

    Returns:
        Secret and salt; None if they are not stored in time.

    Raises:
        redis.RedisError: If Redis cannot be used.
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
