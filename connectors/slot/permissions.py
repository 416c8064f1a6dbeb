"""Commands that a slot needs, and refusals that no repetition mends: a missing right, or a command of another name."""

from __future__ import annotations

from typing import Any

import redis
from redis.exceptions import RedisError, ResponseError

from cluster_serving.protocol.errors import RedisUnavailable
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.redis.connection import address

_NO_GROUP = "cluster-serving-no-group"
"""Name of a group that no stream has: commands for it change nothing, and show whether they are allowed."""

_REFUSED = ("NOPERM", "no permission", "unknown command", "Unknown Redis command")
"""Parts of the messages of such refusals, those inside scripts included."""


def refusal(client: redis.Redis, error: RedisError) -> RedisUnavailable | None:
    """Return what to report about an error that no repetition mends; None for any other error."""
    if not isinstance(error, ResponseError) or not any(part in str(error) for part in _REFUSED):
        return None
    return RedisUnavailable(
        f"Redis at {address(client)} refuses a command that the job needs: {error}; allow it to the user in redisUrl "
        "(docs/how-to/security.md, Users of Redis)"
    )


def check(client: redis.Redis, job: str) -> None:
    """Try the commands that read and answer the requests of a job, without an effect.

    Raises:
        RedisUnavailable: If one of them is refused.
    """
    keys = JobKeys(job)
    commands: list[tuple[Any, ...]] = [
        ("EXPIRE", keys.attempts, 3600),
        ("INCRBY", keys.answered, 0),
        ("PUBLISH", keys.result(""), ""),
    ]
    for stream in keys.streams:
        commands += [
            ("XREADGROUP", "GROUP", _NO_GROUP, _NO_GROUP, "COUNT", 1, "STREAMS", stream, ">"),
            ("XPENDING", stream, _NO_GROUP),
            ("XCLAIM", stream, _NO_GROUP, _NO_GROUP, 0, "0-0", "JUSTID"),
            ("XACK", stream, _NO_GROUP, "0-0"),
            ("XDEL", stream, "0-0"),
            ("XLEN", stream),
        ]
    stream = keys.stream("normal")
    commands += [("XINFO", "GROUPS", stream), ("XGROUP", "DESTROY", stream, _NO_GROUP)]
    for command in commands:
        try:
            client.execute_command(*command)  # type: ignore[no-untyped-call]
        except RedisError as error:
            if refused := refusal(client, error):
                raise refused from None
