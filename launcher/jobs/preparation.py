"""Preparation of a generation: its number and options, and the steps that make all else ready."""

import uuid
from collections.abc import Sequence

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.jobs.services import Services
from cluster_serving.launcher.jobs.steps import (
    copied_model,
    free_names,
    hosted_models,
    inputs_folder,
    layout,
    model_secret,
)
from cluster_serving.launcher.jobs.steps.base import Draft, Step

STEPS: Sequence[Step] = (
    model_secret.stored,
    inputs_folder.provided,
    copied_model.kept,
    hosted_models.found,
    free_names.checked,
    # It measures the model that the slots will load.
    layout.decided,
)
"""Steps of a start, in their order; a start without one of them is a start without its line."""


def prepared(services: Services, config: Config, before: JobOptions | None = None) -> tuple[Config, JobOptions]:
    """Return configuration and options of a new generation, for which all steps have been made.

    `before` are the options of the job as it runs, see `Decider.decide`.
    """
    number = services.store.next_number()
    version = services.store.next_version(number)
    options = job_options(config, uuid.uuid4().hex, generation=number, version=version)
    draft = Draft(services, config, options, before)
    for step in STEPS:
        draft = step(draft)
    return draft.config, draft.options
