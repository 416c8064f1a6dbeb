"""Markers that follow from what a test uses; `make test-fast` leaves out the tests that have one."""

import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test

SUPPORT = Path(__file__).parent

FAST = "not (flink or engine or browser or fuzz or clusters)"

# Fixture → marker of the tests that use it.
FIXTURES = {"cluster": "flink", "own_cluster": "flink", "machines": "flink", "chromium": "browser"}

CLUSTERS = SUPPORT.parent / "clusters"
"""Folder of the tests that need a YARN, a Kubernetes or a Docker engine of the contributor."""

_ENGINE = re.compile(r"^\s*(?:import|from) (?:openvino|tensorflow|keras|torch|onnx|onnxruntime)\b", re.MULTILINE)
_SUPPORT = re.compile(r"\btests\.support(?:\.(\w+)| import ([\w, ]+))")


def mark(item):
    """Add the markers `flink`, `browser`, `engine`, `fuzz` and `clusters` where they apply.

    With `pytest --dist loadgroup`, one worker runs all tests of the engines, which take long to load. Files with tests
    of the shared Flink cluster stay together, and go to any worker; each worker has a cluster of its own.
    """
    for fixture in FIXTURES.keys() & set(item.fixturenames):
        item.add_marker(FIXTURES[fixture])
    if item.path.is_relative_to(CLUSTERS):
        item.add_marker("clusters")
    if loads_engine(item.path):
        item.add_marker("engine")
    if is_hypothesis_test(item.obj) or "schemathesis.cli" in item.obj.__code__.co_consts:
        item.add_marker("fuzz")
    if "cluster" in item.fixturenames:
        item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    elif item.get_closest_marker("engine") and not item.get_closest_marker("flink"):
        item.add_marker(pytest.mark.xdist_group("engine"))


@cache
def loads_engine(path):
    """Return True if the file, or a module of `tests.support` that it reaches by name, imports an engine."""
    pending, texts = [path], {}
    while pending:
        if (file := pending.pop()) not in texts and file.is_file():
            texts[file] = file.read_text("utf8")
            names = (name for one, several in _SUPPORT.findall(texts[file]) for name in (one or several).split(", "))
            for name in names:
                pending += [SUPPORT / f"{name}.py", *(SUPPORT / name).glob("*.py")]
    return any(map(_ENGINE.search, texts.values()))
