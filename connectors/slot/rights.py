"""Commands that a slot needs; a user of Redis may lack the right to some."""

from __future__ import annotations

from typing import Any

import redis
from redis.exceptions import RedisError

from cluster_serving.connectors.slot.permissions import refusal
from cluster_serving.protocol.keys import JobKeys

_NO_GROUP = "cluster-serving-no-group"
"""Name of a group that no stream has: commands for it change nothing, and show whether they are allowed."""


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
