"""A fingerprint that changes with the files of a model."""

import hashlib
import os
from contextlib import suppress
from itertools import islice
from pathlib import Path

from cluster_serving.launcher.config import versions
from cluster_serving.launcher.config.file import FILE_NAME
from cluster_serving.launcher.config.model import Config
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.model_files import MOST_FILES, files


def look(config: Config) -> str:
    """Return the fingerprint of the model that a configuration names now, or in words why it has no fingerprint."""
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


def content(folder: Path, version: str = "") -> str:
    """Return a text that changes with the files of a model, and is the same for a copy that keeps their times.

    It also changes with the version, and with the configuration that the folder of all versions has.
    """
    lines = [version]
    for path in islice(files(folder), MOST_FILES):
        with suppress(OSError):
            status = os.stat(path)
            lines.append("\0".join(map(str, (os.path.relpath(path, folder), status.st_size, status.st_mtime_ns))))
    own = (folder.parent if version else folder) / FILE_NAME
    with suppress(OSError):
        lines.append(own.read_text("utf8", "replace"))
    return hashlib.sha256("\n".join(lines).encode("utf8", "surrogateescape")).hexdigest()
