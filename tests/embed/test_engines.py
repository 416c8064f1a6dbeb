"""Models in other engines' pipelines: a program for each, which is skipped where its package is not installed."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.fixtures.predictor import save_doubling

PROGRAMS = Path(__file__).with_name("programs")


@pytest.mark.parametrize(
    ("package", "program"),
    [("apache_beam", "beam_pipeline"), ("daft", "daft_frame"), ("pyspark", "spark_frame"), ("ray", "ray_data")],
)
def test_each_row_has_its_outputs(tmp_path, package, program):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    save_doubling(tmp_path, 3)
    ran = subprocess.run([sys.executable, PROGRAMS / f"{program}.py", tmp_path], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "as expected" in ran.stdout
