"""Step of a start: the names of the models of a job are not those of other jobs, or of their models."""

from cluster_serving.launcher.jobs import hosted
from cluster_serving.launcher.jobs.steps.base import Draft


def checked(draft: Draft) -> Draft:
    """Check that each name is free, see `hosted.check_free`."""
    hosted.check_free(draft.services.store, [one.name for one in draft.options.hosted], draft.config.model_path)
    return draft
