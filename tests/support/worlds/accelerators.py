"""Accelerators that the engines here report; on most machines none. `python -m` this module lists them."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

from cluster_serving.job.models.detect import detect
from cluster_serving.job.models.devices import Reported
from cluster_serving.job.models.formats import formats, imported


@cache
def reported(asked: str) -> Reported:
    """What an engine reports, by the value of `Format.devices`."""
    found: Reported = imported(asked)()
    return found


def accelerator_of(folder: Path) -> str:
    """The first GPU that the engine of a model folder reports; empty if there is none."""
    return _first(detect(folder).format.devices)


@cache
def accelerated() -> dict[str, str]:
    """Name of each engine that reports a GPU → its first GPU."""
    installed = [one for one in formats() if one.devices and importlib.util.find_spec(one.package)]
    return {one.engine: gpu for one in installed if (gpu := _first(one.devices))}


def _first(asked: str) -> str:
    names = reported(asked).names if asked else ()
    return next((name for name in names if name.startswith(("cuda", "gpu"))), "")


def main() -> None:
    """Print what each engine here reports; exit with 1 if that is no GPU at all."""
    asked = dict.fromkeys(one.devices for one in formats() if one.devices and importlib.util.find_spec(one.package))
    for found in map(reported, asked):
        alone = len(found.names) == 1
        print(f"{found.engine}: {', '.join(found.names)}{f' alone; {found.remedy}' if alone else ''}")
    sys.exit(not accelerated())


if __name__ == "__main__":
    main()
