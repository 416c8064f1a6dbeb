"""Copies of the models of generations: a person may replace the files of a model at any time.

A generation that a crash interrupts loads its model again, and a job is rolled back to an earlier one: both need the
files as they were. Subfolders with numbers as names are versions, which are not changed, and are used as they are.
"""

from __future__ import annotations

import fcntl
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from cluster_serving.job.options import HostedOptions, JobOptions
from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.command_log import warn
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import memory

_FICLONE = 0x40049409  # ioctl_ficlone(2)


def keep(home: Path, config: Config, options: JobOptions) -> JobOptions:
    """Return options that name a copy of the model in the private folder of a target's client.

    The options are returned as they are where no copy is needed, or none can be made.
    """
    source = Path(options.model.path)
    only_there = config.target != "local" and config.ships == "nothing"
    if options.redis.numbered or is_url(options.model.path) or only_there or not source.is_dir():
        return options
    folder = _copies(home) / f"{options.redis.job}@{options.redis.generation}"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if memory.size_of(source) > shutil.disk_usage(folder.parent).free:
            raise OSError(f"{folder.parent} has no room")
        shutil.copytree(source, folder, copy_function=_copy)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        warn(
            f"{source} is used as it is, and a change of its files would change generation "
            f"{options.redis.generation} when that starts again: no copy can be made: {error}"
        )
        return options
    return replace(options, model=replace(options.model, path=str(folder), configured=options.model.path))


def of_model(options: JobOptions, source: Path) -> Path:
    """Return a copy of one model of a job that serves several, beside those of its start; the source if there is none.

    Raises:
        LaunchError: If a file cannot be copied: somebody may be writing the folder.
    """
    if not options.model.configured:
        return source
    folder = Path(options.model.path, f"{source.name}@{uuid.uuid4().hex[:12]}")
    try:
        shutil.copytree(source, folder, copy_function=_copy)
    except (OSError, shutil.Error) as error:
        remove(folder)
        raise LaunchError(f"no copy of {source} can be made: {error}; try again when its files are complete") from None
    return folder


def remove(folder: Path) -> None:
    """Remove the copy of a model."""
    shutil.rmtree(folder, ignore_errors=True)


def tidy_models(before: JobOptions, *used: JobOptions) -> None:
    """Remove the copies of models that options name and none in use do; those of a start stay."""
    kept = {_copy_of(options, one) for options in used for one in options.hosted}
    for one in before.hosted:
        folder = _copy_of(before, one)
        if "@" in folder.name and folder not in kept:
            remove(folder)


def _copy_of(options: JobOptions, one: HostedOptions) -> Path:
    """Return the subfolder of a model in the copy of a job; with numbers, its options name one below."""
    root, path = Path(options.model.path), Path(one.model.path)
    return root / path.relative_to(root).parts[0] if root in path.parents else path


def tidy(home: Path, used: Iterable[JobOptions]) -> None:
    """Remove the copies that no options name."""
    paths = [path for options in used for path in (options.model.path, *(one.model.path for one in options.hosted))]
    named = {*map(Path, paths)}
    # A model that was rolled back is in the copy of an earlier start.
    named |= {parent for path in named for parent in path.parents}
    for folder in _copies(home).glob("*"):
        if folder not in named:
            shutil.rmtree(folder, ignore_errors=True)


def _copies(home: Path) -> Path:
    return home / "models"


def _copy(source: str, target: str) -> str:
    """Copy a file; where the file system can, both share their blocks until one is changed."""
    with open(source, "rb") as read, open(target, "wb") as written:
        try:
            fcntl.ioctl(written, _FICLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, written, 1 << 20)
    shutil.copystat(source, target)
    return target
