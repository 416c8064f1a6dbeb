"""Writing hashes that a job needs to go on, to a Redis that is full, too."""

from __future__ import annotations

from collections.abc import Mapping

import redis

from cluster_serving.protocol.scripts import Call, Script, call, flat

# At its memory limit Redis refuses what may need memory, but not to a script that has written something before. Only
# the job can make room again, so it has to start and to go on.
_PUT = Script("""
if ARGV[1] == 'all' then redis.call('DEL', KEYS[1]) else redis.call('HDEL', KEYS[1], ARGV[2]) end
for at = 2, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
""")


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
    call(client, Call(_PUT, [key], ["all" if instead else "some", *flat(fields)]))
