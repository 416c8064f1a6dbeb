"""Entry points of the job: for the launcher, and for `flink run -pym cluster_serving.job.main`.

The launcher's ways to models and Redis import them when they are called: most commands look at no model, which brings
NumPy, PyArrow and fsspec, and start no job.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cluster_serving.job.options import JobOptions, ModelOptions
from cluster_serving.job.program import SUBMITTED, main

if TYPE_CHECKING:
    from cluster_serving.job.models import ModelFiles

__all__ = ["SUBMITTED", "check_model", "engine_requirements", "main", "number_of", "prepare", "version_folders"]


def check_model(options: ModelOptions) -> ModelFiles:
    """Find a model and check its engine; see `job.models.check`."""
    from cluster_serving.job import models

    return models.check(options)


def engine_requirements() -> set[str]:
    """Return the requirements that install all engines that are known here."""
    from cluster_serving.job import models

    return models.requirements()


def version_folders(path: str) -> dict[int, Path]:
    """Return the folders of a model's versions by number; see `job.models.versions`."""
    from cluster_serving.job.models import versions

    return versions.version_folders(path)


def number_of(folder: Path) -> int | None:
    """Return the number of a version by its folder; None if the name is no number."""
    from cluster_serving.job.models import versions

    return versions.number_of(folder)


def prepare(options: JobOptions) -> None:
    """Write to Redis what a job and its clients need."""
    from cluster_serving.job import preparation

    preparation.prepare(options)


if __name__ == "__main__":
    main()
