"""What a job says of its own work: the growth of its totals between two looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.exceptions import RedisError

from cluster_serving.protocol.connection import open_redis
from cluster_serving.protocol.keys import stats_key
from cluster_serving.protocol.stats import BATCH_SIZES, JobStats


def totals(redis_url: str, job: str) -> JobStats | None:
    """The totals of a job, which its slots write once a second; None if Redis cannot be reached.

    Args:
        redis_url: Redis of the job.
        job: `jobName`.
    """
    try:
        with open_redis(redis_url, job) as db:
            fields: Mapping[bytes, bytes] = db.hgetall(stats_key(job))
            return JobStats.read(fields)
    except RedisError:
        return None


def grown(before: JobStats | None, after: JobStats | None) -> dict[str, Any] | None:
    """The work between two looks; None if there was none.

    Returns:
        `batches` and their mean `batchSize`; means over batches of `queueWaitMs` (of the oldest request), `inferenceMs`
        and `writeMs`; `batchSizes`: upper bound of the size → batches.
    """
    if before is None or after is None or after.batches <= before.batches:
        return None
    batches = after.batches - before.batches
    counts = zip((*map(str, BATCH_SIZES), "inf"), before.batch_sizes, after.batch_sizes, strict=True)
    return {
        "batches": batches,
        "batchSize": round((after.requests - before.requests) / batches, 2),
        "queueWaitMs": round((after.wait_us - before.wait_us) / batches / 1000, 3),
        "inferenceMs": round((after.inference_us - before.inference_us) / batches / 1000, 3),
        "writeMs": round((after.write_us - before.write_us) / batches / 1000, 3),
        "batchSizes": {bound: new - old for bound, old, new in counts if new > old},
    }
