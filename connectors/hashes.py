"""Writing hashes that a job needs to go on, to a Redis that is full, too."""

from __future__ import annotations

from collections.abc import Mapping

import redis

from cluster_serving.protocol.scripts import PUT_FIELDS, Call, call, flat


def put(client: redis.Redis, key: str, fields: Mapping[str, str | int], instead: bool = False) -> None:
    """Write fields of a hash.

    Args:
        client: Connection to the job's Redis.
        key: Of the hash.
        fields: At least one.
        instead: In place of all that the hash held.

    Raises:
        redis.RedisError: Redis cannot be used.
    """
    call(client, Call(PUT_FIELDS, [key], ["all" if instead else "some", *flat(fields)]))
