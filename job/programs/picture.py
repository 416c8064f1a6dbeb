"""The picture of several models in a store, or in an archive there: a folder with the names of their files.

Models are found in the picture, without fetching them, as they are in a folder of models. The files are empty, but for
the configuration of each model. Their times stand for their content in the store.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from cluster_serving.job.models.detect import holds_model
from cluster_serving.job.models.versions import version_folders
from cluster_serving.job.remote.store import RemoteFile
from cluster_serving.protocol.errors import ModelError

_CONFIGURATION = "config.yaml"
_DEPTH = 2
"""Names in the path of the configuration of a model."""


def write(files: Mapping[str, RemoteFile], copy: Callable[[RemoteFile, Path], object], folder: Path) -> bool:
    """Write the picture of files, by path relative to the folder of all models; `copy` copies one to a new file here.

    Return False if the folder is not one of several models: no subfolder has a model, or they are versions of one.

    Raises:
        ModelError: If a configuration cannot be fetched.
    """
    for name, file in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        parts = PurePosixPath(name).parts
        if len(parts) == _DEPTH and parts[-1] == _CONFIGURATION:
            copy(file, target)
        else:
            target.touch()
        digest = hashlib.sha256(f"{file.size}\0{file.version}".encode()).digest()
        # The nanoseconds of some two years, which any file system keeps.
        moment = int.from_bytes(digest[:7])
        os.utime(target, ns=(moment, moment))
    return not version_folders(str(folder)) and any(map(_holds_model, filter(Path.is_dir, folder.iterdir())))


def _holds_model(folder: Path) -> bool:
    try:
        return holds_model(folder) or any(map(holds_model, version_folders(str(folder)).values()))
    except ModelError:
        # Versions beside a model: the start says so.
        return True
