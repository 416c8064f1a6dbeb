"""Measurements that are kept in the state folder, by what they depend on, so that the next start costs nothing."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path

from cluster_serving.job.models.folder import engine_requirements
from cluster_serving.job.options import JobOptions
from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.jobs.layout.choice import SIZES, Asked, Figure, has_figures
from cluster_serving.launcher.services import state
from cluster_serving.protocol import model_files

Scope = tuple[int | None, int | None]

MOST_TRIES = 3
"""Measurements of a busy machine after which a layout stays: such a machine may never be quiet, and a start waits."""

_FOLDER = "layouts"
_CPUINFO = Path("/proc/cpuinfo")
_PART = 1 << 20
_PACKAGES = ("openvino", "onnxruntime", "torch", "tensorflow", "tensorflow-cpu", "opencv-python-headless")


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a measurement.

    Attributes:
        figures: The figures; empty if nothing could be measured.
        scopes: Copies and threads that were asked for; None for those that were measured.
        problem: Reason why nothing could be measured.
        disturbed: What disturbed the last measurement, in words. Empty if nothing did.
        tries: Measurements in a row that were disturbed.
    """

    figures: tuple[Figure, ...] = ()
    scopes: tuple[Scope, ...] = ()
    problem: str = ""
    disturbed: str = ""
    tries: int = 0

    @property
    def is_provisional(self) -> bool:
        """True if the next start has to measure again."""
        return 0 < self.tries < MOST_TRIES

    def answers(self, asked: Asked) -> bool:
        """Return True if what is asked needs no measurement."""
        if self.is_provisional:
            return False
        if self.problem or _scope(asked) in self.scopes:
            return True
        return (None, None) in self.scopes and has_figures(self.figures, asked)

    def with_figures(self, asked: Asked, figures: Sequence[Figure], disturbed: str = "") -> Measured:
        """Return a measurement with new figures, in place of the old ones of the same copies and threads."""
        new = {(figure.copies, figure.threads) for figure in figures}
        old = [each for each in self.figures if (each.copies, each.threads) not in new]
        tries = self.tries + 1 if disturbed else 0
        return Measured((*figures, *old), (*self.scopes, _scope(asked)), disturbed=disturbed, tries=tries)


def key(options: JobOptions, cores: int) -> str:
    """Return the name of a measurement: a digest of model, handler, options, engines and processors.

    Of each file, its path in the folder, its size and its first and last MiB count: layouts do not depend on weights. A
    model at an address counts by its address, and a handler outside of the model folder by its name.
    """
    given = json.loads(options.to_json())
    model = given["model"]
    path = model.pop("path")
    # A start measures a copy of the model, and `tune` the model itself.
    for name in ("thread_per_model", "slot", "configured"):
        del model[name]
    # Distributions that add engines; built-in engines are extras of ours.
    added = [name for name in engine_requirements() if "[" not in name]
    parts = {
        "files": path if is_url(path) else _digests(Path(path)),
        "options": [model, given["image"], given["post_processing"], given["execution_mode"]],
        "already_batched": given["batch"]["input_already_batched"],
        "engines": [_version(name) for name in sorted({*_PACKAGES, *added})],
        "processor": _processor(),
        "cores": cores,
        "sizes": SIZES,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read(name: str) -> Measured | None:
    """Return a measurement; None if this version has not kept it."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        raw = json.loads(_file(name).read_text("utf8"))
        figures = tuple(Figure(**each) for each in raw["figures"])
        scopes = tuple((copies, threads) for copies, threads in raw["scopes"])
        return Measured(figures, scopes, raw["problem"], raw.get("disturbed", ""), raw.get("tries", 0))
    return None


def write(name: str, measured: Measured) -> None:
    """Keep a measurement; nothing is kept if the state folder cannot be written."""
    with suppress(OSError):
        state.write(_file(name), json.dumps(asdict(measured)))


def _scope(asked: Asked) -> Scope:
    return asked.copies, asked.threads


def _file(name: str) -> Path:
    return state.root() / _FOLDER / f"{name}.json"


def _digests(folder: Path) -> list[tuple[str, int, str]]:
    found = []
    for path in islice(model_files.files(folder), model_files.MOST_FILES):
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read(_PART))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(_PART, size - _PART))
            digest.update(file.read())
        found.append((os.path.relpath(path, folder), size, digest.hexdigest()))
    return found


def _version(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    """Return the name of the processor, which on some architectures is that of the architecture alone."""
    with suppress(OSError):
        if match := re.search(r"^model name\s*:\s*(.*)$", _CPUINFO.read_text("utf8", "replace"), re.MULTILINE):
            return match[1]
    return platform.machine()
