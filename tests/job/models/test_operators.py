"""Operators that packages register; packages of the test stand for those of engines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cluster_serving.job.models.operators import Package, load_with
from cluster_serving.protocol.errors import ModelError

MISSING = r"no operator (\S+)"
PATH = Path("model.bin")


def loader(module):
    """Loads a model once a module is imported."""

    def load():
        if module not in sys.modules:
            raise RuntimeError("no operator shapes::square")
        return "loaded"

    return load


def test_a_package_that_is_installed_is_imported(tmp_path, monkeypatch):
    (tmp_path / "shapes_for_a_test.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    packages = (Package("colors_for_a_test", "colors", "colors::"), Package("shapes_for_a_test", "shapes", "shapes::"))
    assert load_with(loader("shapes_for_a_test"), MISSING, packages, PATH, "Engine 1") == "loaded"


def test_a_package_that_is_missing_is_named_with_its_command():
    packages = (Package("colors_for_a_test", "colors", "colors::"), Package("absent_for_a_test", "shapes", "shapes::"))
    with pytest.raises(
        ModelError,
        match="model.bin uses the operator shapes::square, which Engine 1 lacks: run pip install shapes where",
    ):
        load_with(loader("absent_for_a_test"), MISSING, packages, PATH, "Engine 1")


def test_an_operator_of_no_known_package_is_left_to_a_handler():
    with pytest.raises(ModelError, match="Engine 1 lacks: serve it by a handler that imports the package"):
        load_with(loader("absent_for_a_test"), MISSING, (), PATH, "Engine 1")


def test_other_errors_are_those_of_the_engine():
    def load():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        load_with(load, MISSING, (), PATH, "Engine 1")
