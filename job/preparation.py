"""What the start of a job writes to Redis."""

from functools import partial

from cluster_serving.connectors.slot.generation import GenerationView
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.limits import publish_limits
from cluster_serving.connectors.slot.redis import Backoff, connect
from cluster_serving.job.options import JobOptions


def prepare(options: JobOptions) -> None:
    """Write to Redis what the job and its clients need."""
    with connect(options.redis) as client:
        # A Redis that has just started may still be loading its data.
        backoff = Backoff(f"job {options.redis.job}")
        backoff.persist(lambda: create_groups(client, options.redis.queue.job))
        view = GenerationView(client, options.redis)
        backoff.persist(view.look)
        for one in options.hosted:
            model = options.of_hosted(one).redis
            backoff.persist(partial(create_groups, client, model.job))
            backoff.persist(partial(publish_limits, client, model))
        # The limits are those of the generation that serves.
        if view.reads and not options.redis.shadow:
            backoff.persist(lambda: publish_limits(client, options.redis))
