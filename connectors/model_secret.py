"""The secret of an encrypted model: the Redis hash `model_secured`, as the original keeps it."""

from __future__ import annotations

import time

import redis

KEY = "model_secured"
"""Hash with the fields `secret` and `salt`; it is for all jobs of a Redis, as in the original."""

_INTERVAL = 1.0


def wait_for_secret(client: redis.Redis, patience: float) -> tuple[str, str] | None:
    """Wait until an operator has stored the secret and the salt.

    Args:
        client: Connection to the job's Redis.
        patience: Seconds to wait.

    Returns:
        Secret and salt; None if they were not stored in time.

    Raises:
        redis.RedisError: Redis cannot be used.
    """
    deadline = time.monotonic() + patience
    while True:
        # redis-py types its commands as if they might be awaitable.
        secret, salt = client.hmget(KEY, ["secret", "salt"])  # type: ignore[misc]
        if secret and salt:
            return secret.decode(), salt.decode()
        if time.monotonic() >= deadline:
            return None
        time.sleep(_INTERVAL)
