"""Refusals of Redis that no repetition mends: a missing right, a command of another name, a key of another program."""

import redis
from redis.exceptions import RedisError, ResponseError

from cluster_serving.protocol.errors import RedisUnavailable
from cluster_serving.protocol.redis.connection import address, foreign_key

_REFUSED = ("NOPERM", "no permission", "unknown command", "Unknown Redis command")
"""Parts of the messages of such refusals, those inside scripts included."""


def refusal(client: redis.Redis, error: RedisError) -> RedisUnavailable | None:
    """Return what to report about an error that no repetition mends; None for any other error."""
    if foreign := foreign_key(error):
        return RedisUnavailable(f"Redis at {address(client)} refused a command: {error}{foreign}")
    if not isinstance(error, ResponseError) or not any(part in str(error) for part in _REFUSED):
        return None
    return RedisUnavailable(
        f"Redis at {address(client)} refuses a command that the job needs: {error}; allow it to the user in redisUrl "
        "(docs/how-to/security.md, Users of Redis)"
    )
