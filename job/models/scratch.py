"""A private temporary folder for the files of a model."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108 - only as the parent of a private folder


@contextmanager
def scratch_folder(size: int) -> Iterator[Path]:
    """Make a folder that only this user may enter, and remove it at the end.

    Args:
        size: Bytes that will be written; if they fit twice, the folder is in memory, so that nothing reaches a disk.

    Yields:
        The folder.
    """
    parent = _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 * size else None
    with tempfile.TemporaryDirectory(prefix="cluster-serving-", dir=parent) as name:
        yield Path(name)
