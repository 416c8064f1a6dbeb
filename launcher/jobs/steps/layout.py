"""Step of a start: the layout of the job, as configured or as measured (`jobs.layout.decision`)."""

from dataclasses import replace

from cluster_serving.launcher.jobs.layout import decision
from cluster_serving.launcher.jobs.steps.base import Draft


def decided(draft: Draft) -> Draft:
    """Give configuration and options the layout of the job."""
    if draft.options.hosted:
        # A job of many models has no layout: no model is measured.
        return draft
    services = draft.services
    config, options = decision.laid_out(services.target, services.store, draft.config, draft.options, draft.before)
    return replace(draft, config=config, options=options)
