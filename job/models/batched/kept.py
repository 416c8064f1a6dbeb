"""Proofs of batch axes that are kept in the cache of this user, so that a machine proves a model once."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from cluster_serving.job.models import graph
from cluster_serving.job.models.base import Model
from cluster_serving.job.models.batched.axes import InputReading, Reading
from cluster_serving.job.models.batched.proof import Axes
from cluster_serving.job.models.content import Content
from cluster_serving.job.options import ModelOptions
from cluster_serving.job.remote.cache import Cache, take
from cluster_serving.protocol.errors import ModelError

_FOLDER = "proofs"
_MOST_FILES = 500
_MOST_RANKS = 16

_PATIENCE_S = 30.0
_POLL_S = 0.1
"""Seconds to wait for a slot that proves the same model, as it may wait for a load of this one; time between looks."""

Ranks = tuple[int, ...]


class KeptProof:
    """The proofs of a model, in a file whose name is a digest of all that they depend on.

    This is the content of the model, its options, the engine and its version, the processor, and the code of proofs.
    The file has a proof for each number of dimensions that the inputs may have, if the model does not tell it.

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

    @cached_property
    def path(self) -> Path | None:
        """The file; None if proofs cannot be kept."""
        digest = self._content.digest()
        with suppress(ModelError, OSError):
            folder = Cache.open().folder / _FOLDER
            folder.mkdir(mode=0o700, exist_ok=True)
            if digest:
                return folder / f"{hashlib.sha256(f'{digest}{self._rest}'.encode()).hexdigest()}.json"
        return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let one slot at a time prove the model, of whatever process; others wait for it, but not for ever."""
        with _locked(self.path and self.path.with_suffix(".lock")):
            yield

    def read(self, ranks: Ranks, model: Model) -> Axes | None:
        """Return the axes that were found for inputs of these ranks; None if none were, or the outputs are others."""
        kept = self._values().get(_key(ranks))
        if not kept:
            return None
        try:
            axes = _axes(kept)
            fits = len(axes.reading.places) == len(model.inputs)
            return axes if fits and kept["names"] == [spec.name for spec in model.outputs] else None
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def has_failed(self) -> bool:
        """Return True if trials at a start have found nothing."""
        return self._values().get(_key(())) == {}

    def peek(self, ranks: Ranks) -> Axes | None:
        """Return the axes as `read`, for a model that tells its outputs only after a call."""
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            if kept := self._values().get(_key(ranks)):
                return _axes(kept)
        return None

    def write(self, ranks: Ranks, axes: Axes | None, model: Model) -> None:
        """Keep what was found, unless more is known: a proof counts more than none, and what refutes it even more."""
        if self.path is None or (axes is not None and axes.constants):
            return
        # Slots of other processes may write at the same time.
        with _locked(self.path.with_name("lock")), suppress(OSError):
            if _weight(self.peek(ranks)) > _weight(axes):
                return
            values = self._values()
            values.pop(_key(ranks), None)
            names = [spec.name for spec in model.outputs]
            values[_key(ranks)] = {} if axes is None else {**_kept(axes), "names": names}
            unfinished = self.path.with_suffix(f".{os.getpid()}")
            unfinished.write_text(json.dumps(dict([*values.items()][-_MOST_RANKS:])), "utf8")
            unfinished.replace(self.path)
            _prune(self.path.parent)

    def _values(self) -> dict[str, dict[str, Any]]:
        """Return the content of the file, by ranks."""
        if self.path is None:
            return {}
        try:
            values = json.loads(self.path.read_text("utf8"))
            self.path.touch()
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) and all(isinstance(one, dict) for one in values.values()) else {}


@contextmanager
def _locked(path: Path | None) -> Iterator[None]:
    """Hold the lock of a file, of whatever process; nothing if there is none, or it has not become free in time."""
    with ExitStack() as stack:
        if path is not None:
            with suppress(OSError):
                lock = stack.enter_context(path.open("w"))
                end = time.monotonic() + _PATIENCE_S
                while not take(lock.fileno()) and time.monotonic() < end:
                    time.sleep(_POLL_S)
                # A process that was forked meanwhile has the file, too.
                stack.callback(fcntl.flock, lock, fcntl.LOCK_UN)
        yield


def _key(ranks: Ranks) -> str:
    return ",".join(map(str, ranks))


def _weight(axes: Axes | None) -> int:
    if axes is None:
        return 0
    return 1 if not axes.certain else 2 + bool(axes.problem)


def _prune(folder: Path) -> None:
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for old in files[:-_MOST_FILES]:
        old.unlink(missing_ok=True)
        old.with_suffix(".lock").unlink(missing_ok=True)


def _kept(axes: Axes) -> dict[str, Any]:
    reading = axes.reading
    return {
        "places": [[place.axis, place.record] for place in reading.places],
        "fixed": reading.fixed,
        "named": reading.is_named,
        "outputs": axes.outputs,
        "squeezed": sorted(axes.squeezed),
        "problem": axes.problem,
        "certain": axes.certain,
        "changing": axes.changing,
    }


def _axes(values: dict[str, Any]) -> Axes:
    places = tuple(InputReading(axis, tuple(record)) for axis, record in values["places"])
    return Axes(
        Reading(places, values["fixed"], values["named"]),
        tuple(values["outputs"]),
        frozenset(values["squeezed"]),
        values["problem"],
        values["certain"],
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
