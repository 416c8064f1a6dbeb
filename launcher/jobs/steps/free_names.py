"""Step of a start: the names of the models of a job are not those of other jobs, or of their models."""

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import hosted
from cluster_serving.launcher.jobs.steps.base import Draft
from cluster_serving.launcher.jobs.store import JobStore


def checked(draft: Draft) -> Draft:
    """Check that each name is free.

    Raises:
        LaunchError: If one is taken: the streams of two models would be the same.
    """
    store, folder = draft.services.store, draft.config.model_path
    for name in (one.name for one in draft.options.hosted):
        other = JobStore(store.client, name)
        if other.record().state:
            raise LaunchError(
                f"the model {name} has the name of a job; rename its subfolder of {folder}, or remove the job with "
                f"cluster-serving-stop {name} and cluster-serving-cli forget {name}"
            )
        if (host := hosted.host_of(other)) not in ("", store.job):
            raise LaunchError(
                f"the job {host} serves a model of the name {name}, too; rename the subfolder of {folder}"
            )
    return draft
