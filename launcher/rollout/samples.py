"""Samples of the load of a job, by which its number of slots is decided; of several models, all queues count."""

import time

from cluster_serving.launcher.jobs import hosted
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.rollout.autoscaler import Sample
from cluster_serving.protocol.keys import GROUP
from cluster_serving.protocol.scripts import BACKLOG, Call, call


def sample(store: JobStore, slots: int) -> Sample:
    """Return what is known now of a job with this number of slots, which are all ready.

    Raises:
        redis.RedisError: If Redis cannot be used.
    """
    stats = hosted.stats(store)
    streams = [stream for one in hosted.stores(store) for stream in one.keys.streams]
    queued, oldest_ms = call(store.client, Call(BACKLOG, streams, [GROUP]))
    answered, waits, busy_us = stats.requests, stats.wait_ms, stats.compute_us
    requests, records = stats.requests_in, stats.records_in
    return Sample(time.monotonic(), slots, answered, waits, busy_us, queued, oldest_ms, requests, records)
