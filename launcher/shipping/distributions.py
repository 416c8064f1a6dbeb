"""The installed distributions that a job needs, and their files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath

OURS = "cluster-serving"
"""Name of the distribution that has this package."""

# Flink's jars are part of every Flink; a job in a cluster does not need ours.
_LEFT_OUT = {("pyflink", name) for name in ("lib", "opt", "plugins", "examples", "log")} | {
    ("pyarrow", name) for name in ("include", "src")
}
_UNUSED_FOLDERS = {"tests", "test", "testing_data"}
_UNUSED_SUFFIXES = (".a", ".h", ".hpp", ".pxd", ".pyx", ".pyi")
# Builds for GPUs, by the distribution that they are installed in place of, with the extras that bring libraries.
_FOR_GPUS = {
    "onnxruntime": ("onnxruntime-gpu", frozenset({"cuda", "cudnn"})),
    "tensorflow-cpu": ("tensorflow", frozenset({"and-cuda"})),
}


def needed(extras: Iterable[str], requirements: Iterable[str] = ()) -> list[metadata.Distribution]:
    """Return the distributions that extras of this distribution, and further requirements, need; without this one.

    A requirement that is not installed is left out: pip has found it unnecessary here, or an import will name it. In
    place of an engine for the CPU, its build for GPUs may be installed.
    """
    # Imported here: jobs on this machine ship nothing.
    from packaging.requirements import Requirement

    found: dict[str, metadata.Distribution] = {}
    seen: dict[str, set[str]] = {}
    pending = [(OURS, frozenset(extras))]
    pending += [(further.name, frozenset(further.extras)) for further in map(Requirement, requirements)]
    while pending:
        name, wanted = pending.pop()
        name = re.sub(r"[-_.]+", "-", name).lower()
        fresh = {"", *wanted} - seen.setdefault(name, set())
        if not fresh:
            continue
        seen[name] |= fresh
        try:
            distribution = found.setdefault(name, metadata.distribution(name))
        except metadata.PackageNotFoundError:
            if name in _FOR_GPUS:
                pending.append(_FOR_GPUS[name])
            continue
        for requirement in map(Requirement, distribution.requires or ()):
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in fresh):
                pending.append((requirement.name, frozenset(requirement.extras)))
    found.pop(OURS, None)
    return [found[name] for name in sorted(found)]


def files(distribution: metadata.Distribution) -> Iterator[tuple[PurePosixPath, Path]]:
    """Yield the files that a job may import: the path below `site-packages`, and the file here."""
    for file in distribution.files or ():
        path = PurePosixPath(file)
        # Commands and data outside of site-packages begin with "..".
        if path.parts[0] == ".." or path.parts[:2] in _LEFT_OUT or _UNUSED_FOLDERS & set(path.parts[:-1]):
            continue
        source = Path(str(file.locate()))
        if not path.name.endswith(_UNUSED_SUFFIXES) and source.is_file():
            yield path, source
