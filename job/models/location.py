"""The folder of a model on this machine, from the path that the job's options have."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from cluster_serving.job.remote.fetch import fetch
from cluster_serving.job.remote.url import is_url
from cluster_serving.protocol.errors import ModelError

_ARCHIVES = "python-archives"
_DELETED = " (deleted)"


def locate(path: str) -> Path:
    """Return the local folder of a model.

    An absolute path is the folder itself, and a model at an address is fetched. A relative path names a folder that was
    shipped with a job, which Flink or YARN has unpacked somewhere near this process.

    Raises:
        EngineMissing: If a package that fetches the model is not installed.
        ModelError: If the model cannot be fetched, or no such folder was shipped; the message has the places.
    """
    if is_url(path):
        return fetch(path)
    if Path(path).is_absolute():
        return Path(path)
    places = list(dict.fromkeys(_places()))
    if found := next((place / path for place in places if (place / path).is_dir()), None):
        return found
    looked = ", ".join(map(str, places))
    raise ModelError(f"the model {path} was not shipped to this machine; there is no such folder in {looked}")


def _places() -> Iterator[Path]:
    # Process mode of Flink: the archives of the job. YARN: those of the container.
    working = Path(os.readlink("/proc/self/cwd").removesuffix(_DELETED))
    yield working
    # Thread mode: all jobs of a TaskManager share the working directory of one, which may have ended. The archives of
    # the others are in folders beside that one's.
    if working.name == _ARCHIVES:
        yield from sorted(working.parent.parent.glob(f"python-dist-*/{_ARCHIVES}"))
    # The environment was shipped too: the model lies beside it. Links are kept, as YARN's lead into another folder.
    yield from Path(sys.prefix).parents
    yield from Path(__file__).parents
