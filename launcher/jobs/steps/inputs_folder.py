"""Step of a start: the folder in which clients of this machine leave large inputs (`jobs.payload_folder`)."""

from dataclasses import replace

from cluster_serving.launcher.jobs import payload_folder
from cluster_serving.launcher.jobs.steps.base import Draft


def provided(draft: Draft) -> Draft:
    """Provide the folder, with the inputs that wait in that of the last start."""
    options, earlier = draft.options, draft.services.store.payload_folder()
    redis = replace(options.redis, payload_folder=payload_folder.ensure(draft.config, earlier))
    return replace(draft, options=replace(options, redis=redis))
