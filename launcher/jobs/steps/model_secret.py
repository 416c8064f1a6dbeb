"""Step of a start: the secret of an encrypted model is stored in Redis, where the slots look for it."""

from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.jobs.steps.base import Draft
from cluster_serving.protocol.keys import missing_secret


def stored(draft: Draft) -> Draft:
    """Store the secret, or tell how to store it while the slots wait."""
    if not draft.services.store.put_secret(draft.config):
        job = draft.config.job_name
        say(f"{missing_secret(job)}, within a minute; or set CLUSTER_SERVING_MODEL_SECRET")
    return draft
