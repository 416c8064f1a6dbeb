"""Step of a start: the generation has a copy of its model (`jobs.model_copy`)."""

from dataclasses import replace

from cluster_serving.launcher.jobs import model_copy
from cluster_serving.launcher.jobs.steps.base import Draft


def kept(draft: Draft) -> Draft:
    """Copy the model where its files may change."""
    options = model_copy.keep(draft.services.target.home.path, draft.config, draft.options)
    return replace(draft, options=options)
