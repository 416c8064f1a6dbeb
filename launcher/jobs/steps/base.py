"""What a step of a start may do: it changes the draft of a generation, or makes something ready for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.jobs.services import Services


@dataclass(frozen=True, slots=True)
class Draft:
    """A generation of a job before its start.

    Attributes:
        services: Target, Flink and Redis of the job.
        config: Configuration of the job.
        options: Options of the generation.
        before: Options of the job as it runs; None for a job that does not run.
    """

    services: Services
    config: Config
    options: JobOptions
    before: JobOptions | None = None


Step = Callable[[Draft], Draft]
"""A function that returns the draft, changed perhaps; it raises `LaunchError` if the job cannot be started."""
