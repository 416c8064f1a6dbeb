"""The environment archive: this interpreter with the packages that a job needs, for machines that have neither."""

from __future__ import annotations

import hashlib
import platform
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution
from pathlib import Path, PurePosixPath

from cluster_serving.launcher.services.flink_home import PACKAGES
from cluster_serving.launcher.shipping import archive, distributions, interpreter

NAME = "environment"
"""Name under which Flink unpacks the archive."""

PYTHON = f"{NAME}/{interpreter.PROGRAM}"
"""The interpreter in the unpacked archive."""

_LAYOUT = "1"
"""Changes with how archives are packed, so that no archive of an earlier version is used."""

_CODE = ("protocol", "connectors", "job", "embed")


def ensure(extras: Iterable[str], with_interpreter: bool = True, requirements: Iterable[str] = ()) -> Path:
    """Return the archive with this interpreter, the packages of extras and further requirements, and this package.

    The archive is packed once for its content: versions of Python and packages, and the code of this package. Without
    the interpreter, the packages are at the root of the archive.

    Raises:
        LaunchError: If the interpreter cannot be packed.
    """
    needed = distributions.needed(sorted(extras), requirements)
    kind = NAME if with_interpreter else "packages"
    path = archive.path_of(kind, _digest(needed), ".tar.gz")
    if not archive.touch(path):
        what = f"{'Python and its' if with_interpreter else 'the'} packages, once for these versions"
        with tempfile.TemporaryDirectory(dir=archive.folder()) as work:
            base = interpreter.SITE_PACKAGES if with_interpreter else ""
            python = interpreter.files(Path(work)) if with_interpreter else ()
            packages = ((PurePosixPath(base, name), file) for name, file in _packages(needed))
            archive.write(path, (entry for part in (python, packages) for entry in part), what)
    return path


def _packages(needed: Iterable[Distribution]) -> Iterator[tuple[PurePosixPath, Path]]:
    for distribution in needed:
        yield from distributions.files(distribution)
    yield from _code()


def _code() -> Iterator[tuple[PurePosixPath, Path]]:
    """Yield the files of this package that run in the job, wherever they are installed from."""
    root = PACKAGES / "cluster_serving"
    # A package of this name without it would be hidden by one that is installed in the cluster.
    yield PurePosixPath("cluster_serving", "__init__.py"), root / "__init__.py"
    for package in _CODE:
        folder = root / package
        for file in sorted(folder.rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                yield PurePosixPath("cluster_serving", package, file.relative_to(folder)), file


def _digest(needed: Iterable[Distribution]) -> str:
    versions = [f"{found.name}=={found.version}" for found in needed]
    content = [_LAYOUT, sys.version, sys.base_prefix, platform.machine(), *versions, archive.digest_of(_code())]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()
