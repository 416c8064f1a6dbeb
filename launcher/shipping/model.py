"""The archive of a model folder, named by its content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.services import memory
from cluster_serving.launcher.shipping import archive


def ensure(folder: Path) -> Path:
    """Return the archive `model-<hash>.tar` of a model folder; it is packed again only if the content has changed.

    The archive is not compressed: weights hardly get smaller.
    """
    files = list(_files(folder))
    path = archive.path_of("model", archive.digest_of(files), ".tar")
    if not archive.touch(path):
        say(f"Packing the model, {memory.size_of(folder) / 1e6:.0f} MB")
        archive.write(path, files)
    return path


def name_of(path: Path) -> str:
    """Return the name of the folder that an archive is unpacked to."""
    return path.name.removesuffix(".tar")


def _files(folder: Path) -> Iterator[tuple[PurePosixPath, Path]]:
    for file in sorted(folder.rglob("*")):
        relative = file.relative_to(folder)
        if file.is_file() and not any(part.startswith(".") for part in relative.parts):
            yield PurePosixPath(relative), file
