"""Models of other servers, as `cluster-serving-init --from` takes them over; one module for each server.

No code of theirs is run, and no pickle is loaded: their files are read as text and copied.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster_serving.job.remote.url import ARCHIVES
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.origins import (
    bentoml,
    hugging_face,
    kserve,
    manifests,
    mlflow,
    mlserver,
    seldon,
    served,
    several,
    storage,
    tensorflow_serving,
    torchserve,
    triton,
    undescribed,
)
from cluster_serving.launcher.origins.taken import Taken
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.host import archive

_READERS = (torchserve, mlflow, mlserver, bentoml, triton, tensorflow_serving, hugging_face)
_ORIGINS: dict[str, Callable[[Path], Taken | None]] = {origin.EXPECTED: origin.read for origin in _READERS}
"""What is expected, for messages → what reads it."""

_MANIFESTS: dict[str, Callable[[Path, storage.Reader], Taken | None]] = {
    origin.EXPECTED: origin.read for origin in (kserve, seldon)
}
"""The same of manifests, which name models of the others."""


@contextmanager
def opened(source: Path) -> Iterator[Taken]:
    """Provide what can be taken over; an archive is unpacked for the block.

    Raises:
        LaunchError: See `read`; or if the archive is damaged, or not safe to unpack.
    """
    kind = next((ending for ending in ARCHIVES if source.name.lower().endswith(ending)), "")
    if not kind or not source.is_file():
        yield read(source)
        return
    with TemporaryDirectory(prefix="cluster-serving-") as folder:
        # Some origins have the name of their folder.
        target = Path(folder) / (source.name[: -len(kind)] or "model")
        try:
            archive.unpack(source, kind, target, str(source))
            taken = read(archive.root(target))
        except (LaunchError, ModelError) as error:
            raise LaunchError(str(error).replace(str(target), str(source))) from None
        yield taken


def read(path: Path) -> Taken:
    """Return what can be taken over from the folder, *.mar or manifest of another server.

    Raises:
        LaunchError: If no known server has such files, or the model cannot be served; the message has the way out.
    """
    if not path.exists():
        raise LaunchError(f"{path} does not exist; name the folder or archive that the other server serves")
    taken = _of_folder(path) if path.is_dir() else _of_files(path) or _of_manifest(path)
    if taken:
        return taken if taken.own or not taken.files else served.check(taken)
    manifests.refuse(path, " or ".join([*kserve.KINDS, *seldon.KINDS]))
    if path.is_dir():
        undescribed.refuse(path)
    found = ", ".join(sorted(entry.name for entry in path.iterdir())[:20]) if path.is_dir() else "a file"
    expected = "; ".join([*_ORIGINS, *_MANIFESTS])
    raise LaunchError(f"{path} is not the model of a server that is known here. Found: {found}. Expected: {expected}")


def _of_folder(path: Path) -> Taken | None:
    """Return what a manifest in the folder names if it lies on this machine, else what the files themselves are."""
    refused = None
    try:
        described = _of_manifest(path)
    except LaunchError as error:
        described, refused = None, error
    if described is None or not described.files:
        taken = _of_files(path) or described
        if taken is None and refused:
            raise refused
        return taken
    sources = [source for source in described.files.values() if isinstance(source, Path) and path in source.parents]
    used = {source.relative_to(path).parts[0] for source in sources}
    described.left += several.unread(path, used | manifests.names(path))
    return described


def _of_manifest(path: Path) -> Taken | None:
    """Return the models that manifests describe; None if none does."""
    return next((taken for one in _MANIFESTS.values() if (taken := one(path, _of_files)) is not None), None)


def _of_files(path: Path) -> Taken | None:
    """Return what the first server takes that knows the files; None if none does."""
    return next((taken for read_origin in _ORIGINS.values() if (taken := read_origin(path)) is not None), None)
