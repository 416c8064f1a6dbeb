"""Step of a start: the names of the models of a job are not those of other jobs, or of their models."""

from cluster_serving.launcher.config import repository
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import hosted
from cluster_serving.launcher.jobs.steps.base import Draft
from cluster_serving.launcher.services import redis_server
from cluster_serving.protocol.redis.addresses import is_cluster_url


def checked(draft: Draft) -> Draft:
    """Check that each name is free, see `hosted.check_free`, and that one Redis has the keys of all.

    Raises:
        LaunchError: If a name is taken, or Redis is a cluster by another address than `redis+cluster://`.
    """
    names, folder = [one.name for one in draft.options.hosted], repository.place(draft.config.model_path)
    has_cluster_url = is_cluster_url(draft.config.redis_url)
    if names and not has_cluster_url and redis_server.is_cluster(draft.services.store.client):
        raise LaunchError(
            f"{folder} holds several models, and redisUrl is a node of a Redis Cluster; set redisUrl: "
            f"redis+cluster://{draft.config.redis_address}"
        )
    hosted.check_free(draft.services.store, names, folder)
    return draft
