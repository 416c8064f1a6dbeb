"""Content of a model: a digest of its files, which is the same on each machine and after each start."""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from stat import S_ISREG

from cluster_serving.job.models.location import locate
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.model_files import MOST_FILES, files

_PART = 1 << 20

_Seen = tuple[tuple[str, int, int, int], ...]


class Content:
    """Content of the model that a slot loads. Its files are read when the digest is first needed.

    The device and the precision count, too, since kernels depend on them.

    Args:
        options: Options of the model.

    Raises:
        EngineMissing: If a package that fetches the model is not installed.
        ModelError: If the model cannot be found; see `location.locate`.
    """

    def __init__(self, options: ModelOptions) -> None:
        self._folder = locate(options.path)
        self._computed_by = f"{options.device}\0{options.inference_precision}\0"
        self._seen = _look(self._folder)
        self._digest = ""
        self._thread: threading.Thread | None = None

    def digest(self) -> str:
        """Return the digest; empty if the files have changed since this object was made. A GB takes some seconds."""
        if not self._digest:
            with suppress(OSError):
                self._digest = _digest(self._folder, self._seen, self._computed_by)
        return self._digest

    def digest_soon(self) -> str:
        """Return the digest if it is known; else compute it in a thread, and return an empty text."""
        if not self._digest and self._thread is None:
            self._thread = threading.Thread(target=self.digest, name="digest", daemon=True)
            self._thread.start()
        return self._digest


def _look(folder: Path) -> _Seen:
    seen = []
    for path in islice(files(folder), MOST_FILES):
        # Links may lead nowhere, and a pipe has no end.
        with suppress(OSError):
            status = os.stat(path)
            if S_ISREG(status.st_mode):
                name = os.path.relpath(path, folder)
                seen.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(seen)


# The slots of a process have the same files.
@lru_cache(maxsize=16)
def _digest(folder: Path, seen: _Seen, computed_by: str) -> str:
    digest = hashlib.sha256(computed_by.encode())
    for name, _, size, _ in seen:
        digest.update(f"{name}\0{size}\0".encode("utf8", "surrogateescape"))
        # A file that the job may not read is no part of the model.
        with suppress(PermissionError), open(folder / name, "rb") as file:
            while part := file.read(_PART):
                digest.update(part)
    return digest.hexdigest() if _look(folder) == seen else ""
