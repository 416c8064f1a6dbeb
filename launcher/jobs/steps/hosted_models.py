"""Step of a start: the models of a job that serves several, each with its options (`config.repository`)."""

from dataclasses import replace

from cluster_serving.launcher.command_log import warn
from cluster_serving.launcher.config import repository
from cluster_serving.launcher.jobs import hosted
from cluster_serving.launcher.jobs.steps.base import Draft
from cluster_serving.launcher.shipping.inspection import shown


def found(draft: Draft) -> Draft:
    """Give the options those of each model, if the folder of the job holds several."""
    config = shown(draft.config)
    models = repository.find(config)
    if models is None:
        return draft
    if models.ignored:
        place = repository.place(draft.config.model_path)
        warn(f"subfolders of {place} that are not served: {'; '.join(models.ignored)}")
    options = repository.with_models(config, draft.options, models.names)
    store = draft.services.store
    counted = (hosted.with_count(store, one) for one in options.hosted)
    return replace(draft, options=replace(options, hosted=tuple(counted)))
