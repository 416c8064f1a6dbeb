"""What clients need to know of a job's configuration: the Redis hash `<jobName>:limits`."""

from __future__ import annotations

import redis

from cluster_serving.connectors.hashes import put
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.protocol.keys import MAX_QUEUE_LENGTH, PAYLOAD_FOLDER, RESULT_TTL, limits_key


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
    put(client, limits_key(job), limits, instead=True)
