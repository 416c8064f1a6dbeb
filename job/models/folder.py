"""What the launcher asks about model folders.

The modules are imported when a function is called: most commands look at no model, which brings NumPy, PyArrow and
fsspec.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_serving.job.options import ModelOptions

if TYPE_CHECKING:
    from cluster_serving.job.models.detect import ModelFiles


def check_model(options: ModelOptions) -> ModelFiles:
    """Find a model and check its engine; see `detect.check`."""
    from cluster_serving.job.models import detect

    return detect.check(options)


def engine_requirements() -> set[str]:
    """Return the requirements that install all engines that are known here."""
    from cluster_serving.job.models import formats

    return formats.requirements()


def version_folders(path: str) -> dict[int, Path]:
    """Return the folders of a model's versions by number; see `versions.version_folders`."""
    from cluster_serving.job.models import versions

    return versions.version_folders(path)


def number_of(folder: Path) -> int | None:
    """Return the number of a version by its folder; None if the name is no number."""
    from cluster_serving.job.models import versions

    return versions.number_of(folder)


def check_names(names: Iterable[str], folder: Path) -> None:
    """Check that the names in a folder are those of one model; see `detect.identify`."""
    from cluster_serving.job.models import detect

    detect.identify(names, folder)


def way_out(names: Iterable[str]) -> str:
    """Return what to do with a file of these that no engine serves; see `foreign.way_out`."""
    from cluster_serving.job.models import foreign

    return foreign.way_out(names)


def holds_model(folder: Path) -> bool:
    """Return True if a folder holds a model, a part of one, or a handler; see `detect.holds_model`."""
    from cluster_serving.job.models import detect

    return detect.holds_model(folder)
