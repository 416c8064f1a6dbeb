"""The configuration of a job that its clients need."""

import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.redis import write_hash
from cluster_serving.protocol.keys import MAX_QUEUE_LENGTH, PAYLOAD_FOLDER, RESULT_TTL, JobKeys


def publish_limits(client: redis.Redis, options: RedisOptions) -> None:
    """Write the configuration that clients need to the hash `<jobName>:limits`, in place of an earlier one."""
    limits: dict[str, str | int] = {RESULT_TTL: options.result_ttl_s}
    if options.max_queue_length:
        limits[MAX_QUEUE_LENGTH] = options.max_queue_length
    if options.payload_folder:
        limits[PAYLOAD_FOLDER] = options.payload_folder
    write_hash(client, JobKeys(options.job).limits, limits, replace=True)
