"""The files of a model, and a fingerprint that changes with them."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from cluster_serving.launcher.command_log import NAME as COMMAND_LOG
from cluster_serving.launcher.config import versions
from cluster_serving.launcher.config.model import Config
from cluster_serving.protocol.errors import ModelError

MOST_FILES = 1000
"""Files of a model that are looked at."""


def look(config: Config) -> str:
    """Return the fingerprint of the model that a configuration names now; in words why there is none if so."""
    try:
        folder, version = versions.resolve(config.model_path, config.model_version)
    except ModelError as error:
        return str(error)
    return fingerprint(Path(folder), version)


def fingerprint(folder: Path, version: str = "") -> str:
    """Return a text that changes with the version, and with the name, inode, size or times of any file of a model.

    Links are followed, so a link that leads to other files is a change, as in a volume of a ConfigMap. Hidden files,
    configurations and the log of the commands do not count. It is empty if the folder has no files. One look costs a
    call of `stat` for each file, of which there may be 1000; further ones do not count.
    """
    lines = []
    for path in islice(files(folder), MOST_FILES):
        try:
            status = os.stat(path)
        except OSError:
            continue  # It was removed meanwhile.
        # The time of writing can be set back, the time of the last change cannot.
        numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        lines.append("\0".join(map(str, (os.path.relpath(path, folder), *numbers))))
    if not lines:
        return ""
    return hashlib.sha256("\n".join([version, *lines]).encode("utf8", "surrogateescape")).hexdigest()


def files(folder: Path) -> Iterator[str]:
    """Yield the paths of the files that make a model, in order; see `fingerprint`."""
    seen: set[tuple[int, int]] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        with suppress(OSError):
            status = os.stat(parent)
            place = (status.st_dev, status.st_ino)
            if place in seen:
                # A link leads back.
                folders.clear()
                continue
            seen.add(place)
        # Python writes there when it loads a handler.
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        for name in sorted(names):
            if not name.startswith((".", COMMAND_LOG)) and not name.endswith((".yaml", ".yml")):
                yield os.path.join(parent, name)
