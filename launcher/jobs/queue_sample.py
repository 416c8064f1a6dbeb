"""What the autoscaler has to know of a job, from its Redis."""

import time
from typing import cast

import redis

from cluster_serving.launcher.jobs.autoscaler import Sample
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.scripts import BACKLOG, Call, call
from cluster_serving.protocol.stats import JobStats


def read(client: redis.Redis, job: str, slots: int) -> Sample:
    """Return a sample of a job, all of whose slots are ready. The client has replies as text."""
    fields = cast("dict[str, str]", client.hgetall(JobKeys(job).stats()))
    stats = JobStats.read({name.encode(): value.encode() for name, value in fields.items()})
    queued, oldest_ms = cast("tuple[int, int]", call(client, Call(BACKLOG, JobKeys(job).streams, [GROUP])))
    return Sample(
        time=time.monotonic(),
        slots=slots,
        answered=stats.requests,
        waits=stats.wait_ms,
        busy_us=stats.inference_us,
        queued=queued,
        oldest_ms=oldest_ms,
    )
