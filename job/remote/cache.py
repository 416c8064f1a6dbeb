"""Local cache of models that were fetched: complete versions beside each other, by address and content.

```
<cache>/<address>.lock            held by the slot that fetches
<cache>/<address>/<content>/      a complete version; its time is that of its last use
<cache>/<address>/partial/        what is being fetched, or is left of a crash
<cache>/<address>/removed-.../    what is being removed, or is left of a crash
```
"""

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cluster_serving.protocol.errors import ModelError

VARIABLE = "CLUSTER_SERVING_CACHE"
"""Environment variable with the path of the cache."""

KEPT = 5
"""Most versions that are kept, unless more were used within `RECENT_S`."""

RECENT_S = 3600
"""Seconds after its last use within which no version is removed: a slot may be loading it."""

_PARTIAL = "partial"
_REMOVED = "removed-"
_POLL_S = 0.1


class Cache:
    """The cache of this user on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls) -> "Cache":
        """Return the cache in `$CLUSTER_SERVING_CACHE`, or else in a folder of this user that can be written.

        Raises:
            ModelError: If there is no such folder.
        """
        if chosen := os.environ.get(VARIABLE):
            candidates = [Path(chosen).absolute()]
        else:
            home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
            candidates = [Path(home, "cluster-serving")] if os.path.isabs(home) else []
            candidates.append(Path(tempfile.gettempdir(), f"cluster-serving-cache-{os.getuid()}"))
        problems = []
        for folder in candidates:
            if problem := _unusable(folder):
                problems.append(f"{folder} {problem}")
            else:
                return cls(folder)
        raise ModelError(f"no folder for fetched models: {'; '.join(problems)}; set {VARIABLE} to one")

    @contextmanager
    def locked(self, address: str) -> Iterator[None]:
        """Let one slot at a time, of whatever process, fetch from an address."""
        with (self.folder / f"{address}.lock").open("w") as lock:
            # Polled, since a call that waits for the lock cannot be interrupted.
            while not take(lock.fileno()):
                time.sleep(_POLL_S)
            yield

    def find(self, address: str, content: str) -> Path | None:
        """Return the folder of a complete version, which counts as used now; None if there is none."""
        version = self.folder / address / content
        if not version.is_dir():
            return None
        os.utime(version)
        return version

    @contextmanager
    def begin(self, address: str) -> Iterator[Path]:
        """Make a new folder to fetch into, and remove it at the end. The lock must be held."""
        partial = self.folder / address / _PARTIAL
        # What a crash has left.
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def commit(self, fetched: Path, address: str, content: str) -> Path:
        """Make a folder a complete version, in one step that a crash does not divide. The lock must be held."""
        for path in [*fetched.rglob("*"), fetched]:
            _sync(path)
        version = self.folder / address / content
        os.utime(fetched)
        fetched.rename(version)
        _sync(version.parent)
        self._prune(address)
        return version

    def _prune(self, held: str) -> None:
        """Remove the versions that were used longest ago; `held` is the address whose lock this slot has."""
        used: dict[Path, float] = {}
        for path in self.folder.glob("*/*"):
            # Other folders of the cache have files.
            if path.name != _PARTIAL and path.is_dir():
                # Another slot may remove one at the same time, here and below.
                with suppress(FileNotFoundError):
                    used[path] = path.stat().st_mtime
        newest = sorted(used, key=lambda path: used[path], reverse=True)
        for path in newest:
            is_left = path.name.startswith(_REMOVED)
            if not is_left and (path in newest[:KEPT] or time.time() - used[path] < RECENT_S):
                continue
            with ExitStack() as locks, suppress(FileNotFoundError):
                address = path.parent.name
                if address != held:
                    lock = locks.enter_context((self.folder / f"{address}.lock").open("w"))
                    if not take(lock.fileno()):
                        continue
                # Renamed first: a version that a crash has left half removed must not count as complete.
                doomed = path if is_left else path.rename(path.with_name(_REMOVED + path.name))
                shutil.rmtree(doomed, ignore_errors=True)


def _unusable(folder: Path) -> str:
    """Make a private folder; return why it cannot be used, or nothing."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        # Where others can write, as in /tmp, another user could have made the folder and put a model into it.
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            return "belongs to another user, or others can write into it"
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"cannot be written ({error.strerror})"


def take(lock: int) -> bool:
    """Take the lock of an open file, unless another process or thread has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
