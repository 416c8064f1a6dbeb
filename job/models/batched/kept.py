"""Proofs of batch axes that are kept in the cache of this user, so that a machine proves a model once."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from cluster_serving.job.models import graph
from cluster_serving.job.models.base import Model
from cluster_serving.job.models.batched.axes import InputReading, Reading
from cluster_serving.job.models.batched.proof import Axes
from cluster_serving.job.models.content import Content
from cluster_serving.job.options import ModelOptions
from cluster_serving.job.remote.cache import Cache
from cluster_serving.protocol.errors import ModelError

_FOLDER = "proofs"
_MOST_FILES = 500

# Slots of a process load the same model: the first one proves it.
_locks: dict[Path, threading.Lock] = defaultdict(threading.Lock)

# Another thread of the parent may hold a lock.
os.register_at_fork(after_in_child=_locks.clear)


class KeptProof:
    """The proof of a model, in a file whose name is a digest of all that it depends on.

    This is the content of the model, its options, the engine and its version, the processor, and the code of proofs.

    Args:
        content: Content of the model.
        options: Options of the model.
        package: Package of the engine, which is imported.
        most: Most records of a call.
    """

    def __init__(self, content: Content, options: ModelOptions, package: str, most: int) -> None:
        self._content = content
        same = replace(options, path="", slot=0, configured="", inference_timeout_s=None)
        version = getattr(sys.modules.get(package), "__version__", "")
        self._rest = json.dumps([asdict(same), package, str(version), most, _processor(), _code()], sort_keys=True)

    @contextmanager
    def file(self) -> Iterator[Path | None]:
        """Provide the file, to one slot of this process at a time; None if proofs cannot be kept."""
        digest = self._content.digest()
        folder = None
        if digest:
            with suppress(ModelError, OSError):
                folder = Cache.open().folder / _FOLDER
                folder.mkdir(mode=0o700, exist_ok=True)
        if folder is None:
            yield None
            return
        path = folder / f"{hashlib.sha256(f'{digest}{self._rest}'.encode()).hexdigest()}.json"
        with _locks[path]:
            yield path


def read(path: Path, model: Model) -> Axes | None:
    """Return the axes of a kept proof; None if there is none, or the model tells its outputs only after a call."""
    try:
        values = json.loads(path.read_text("utf8"))
        axes = _axes(values)
        path.touch()
    except (OSError, ValueError, TypeError, KeyError):
        return None
    fits = len(axes.reading.places) == len(model.inputs) and len(axes.outputs) == len(model.outputs)
    return axes if fits else None


def write(path: Path, axes: Axes) -> None:
    """Keep a proof to which further records add nothing."""
    if not axes.certain or axes.constants:
        return
    unfinished = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        unfinished.write_text(json.dumps(_values(axes)), "utf8")
        unfinished.replace(path)
        kept = sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)
        for old in kept[:-_MOST_FILES]:
            old.unlink(missing_ok=True)


def _values(axes: Axes) -> dict[str, Any]:
    reading = axes.reading
    return {
        "places": [[place.axis, place.record] for place in reading.places],
        "fixed": reading.fixed,
        "named": reading.is_named,
        "outputs": axes.outputs,
        "squeezed": sorted(axes.squeezed),
        "problem": axes.problem,
        "changing": axes.changing,
    }


def _axes(values: dict[str, Any]) -> Axes:
    places = tuple(InputReading(axis, tuple(record)) for axis, record in values["places"])
    return Axes(
        Reading(places, values["fixed"], values["named"]),
        tuple(values["outputs"]),
        frozenset(values["squeezed"]),
        values["problem"],
        changing=values["changing"],
    )


@cache
def _code() -> str:
    digest = hashlib.sha256()
    for folder in (Path(__file__).parent, Path(graph.__file__).parent):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


@cache
def _processor() -> str:
    """Return what kernels are chosen by."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf8", "replace").splitlines():
            if line.startswith(("flags", "Features")):
                return line
    return platform.processor() or platform.machine()
