"""What the autoscaler has to know of a job, from its Redis."""

import time

from cluster_serving.launcher.jobs.autoscaler import Sample
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.keys import GROUP
from cluster_serving.protocol.scripts import BACKLOG, Call, call


def read(store: JobStore, slots: int) -> Sample:
    """Return a sample of a job, all of whose slots are ready."""
    stats = store.stats()
    queued, oldest_ms = call(store.client, Call(BACKLOG, store.keys.streams, [GROUP]))
    return Sample(
        time=time.monotonic(),
        slots=slots,
        answered=stats.requests,
        waits=stats.wait_ms,
        busy_us=stats.inference_us,
        queued=queued,
        oldest_ms=oldest_ms,
    )
