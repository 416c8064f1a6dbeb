"""Models of other servers, as `cluster-serving-init --from` takes them over; one module for each server.

No code of theirs is run, and no pickle is loaded: their files are read as text and copied.
"""

from collections.abc import Callable
from pathlib import Path

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import hugging_face, mlflow, tensorflow_serving, torchserve, triton
from cluster_serving.launcher.origins.taken import Taken

_ORIGINS: dict[str, Callable[[Path], Taken | None]] = {
    origin.EXPECTED: origin.read for origin in (torchserve, mlflow, triton, tensorflow_serving, hugging_face)
}
"""What is expected, for messages → what reads it."""


def read(path: Path) -> Taken:
    """Return what can be taken over from the folder or archive of another server.

    Raises:
        LaunchError: If it is none that is known, or its model cannot be served; the message has the way out.
    """
    if not path.exists():
        raise LaunchError(f"{path} does not exist; name the folder or archive that the other server serves")
    for read_origin in _ORIGINS.values():
        if (taken := read_origin(path)) is not None:
            return taken
    found = ", ".join(sorted(entry.name for entry in path.iterdir())[:20]) if path.is_dir() else "a file"
    raise LaunchError(
        f"{path} is not the model of a server that is known here. Found: {found}. Expected: {'; '.join(_ORIGINS)}"
    )
