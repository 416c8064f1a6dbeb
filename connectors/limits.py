"""What clients need to know of a job's configuration: the Redis hash `<jobName>:limits`."""

from __future__ import annotations

import redis

from cluster_serving.client.limits import MAX_QUEUE_LENGTH, PAYLOAD_FOLDER, RESULT_TTL, limits_key
from cluster_serving.client.scripts import Call, Script, call, flat
from cluster_serving.connectors.options import RedisOptions

# At its memory limit Redis refuses what may need memory, but not to a script that has written something before. Only
# the job can make room again, so it has to start.
_PUBLISH = Script("redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], unpack(ARGV))")


def publish_limits(client: redis.Redis, job: str, options: RedisOptions) -> None:
    """Say what holds from now on, in place of what an earlier configuration said.

    Raises:
        redis.RedisError: Redis cannot be used.
    """
    limits: dict[str, str | int] = {RESULT_TTL: options.result_ttl_s}
    if options.max_queue_length:
        limits[MAX_QUEUE_LENGTH] = options.max_queue_length
    if options.payload_folder:
        limits[PAYLOAD_FOLDER] = options.payload_folder
    call(client, Call(_PUBLISH, [limits_key(job)], flat(limits)))
