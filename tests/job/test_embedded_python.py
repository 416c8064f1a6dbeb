"""The module that the Python of a TaskManager imports first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_serving.job.embedded_python import sitecustomize

FOLDER = str(Path(sitecustomize.__file__).parent)


def run(program, *path):
    """Run a program in a Python that has these folders, and the module, on its PYTHONPATH."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([FOLDER, *map(str, path)])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_pyflink_finds_its_compiled_modules_without_apache_beam():
    program = """
import sys, sitecustomize
sys.meta_path.insert(0, sitecustomize.WithoutBeam())
from pyflink.fn_execution import coders
print(coders.coder_impl.__name__, "apache_beam" in sys.modules)
"""
    assert run(program) == ["pyflink.fn_execution.coder_impl_fast", "False"]


def test_what_needs_apache_beam_still_imports_it():
    program = """
import sys, sitecustomize
sys.meta_path.insert(0, sitecustomize.WithoutBeam())
from pyflink.fn_execution.beam import beam_operations
print("apache_beam" in sys.modules)
"""
    assert run(program) == ["True"]


def test_a_python_that_is_no_part_of_a_jvm_is_as_it_was():
    assert run("import sys; print(*(type(finder).__name__ for finder in sys.meta_path))").count("WithoutBeam") == 0


@pytest.mark.parametrize("name", ["sitecustomize.py", "sitecustomize/__init__.py"])
def test_the_module_of_that_name_that_it_hides_runs(tmp_path, name):
    other = tmp_path / name
    other.parent.mkdir(exist_ok=True)
    other.write_text("import sys; sys.other_ran = True")
    assert run("import sys; print(sys.other_ran)", tmp_path) == ["True"]
