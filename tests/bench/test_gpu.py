"""bench/gpu.sh, on a machine without a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest

from cluster_serving.job.models.devices import cuda_driver_devices

SCRIPT = Path(__file__).parents[2] / "bench" / "gpu.sh"


def run(*words, **options):
    return subprocess.run([SCRIPT, *words], capture_output=True, text=True, check=False, **options)


def test_it_says_how_it_is_used():
    for words in ((), ("--venv", "x"), ("--install",)):
        done = run(*words)
        assert done.returncode == 2
        assert "bench/gpu.sh VENV..." in done.stderr
    assert run("--help").returncode == 0


def test_it_overwrites_nothing_and_names_a_wrong_folder(tmp_path):
    done = run("--install", ".", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        f"bench/gpu.sh: {tmp_path}/. exists; name a new folder, or run bench/gpu.sh ./*\n",
    )
    done = run("here", cwd=tmp_path)
    assert done.returncode == 1
    assert f"bench/gpu.sh: {tmp_path}/here is no virtual environment" in done.stderr


@pytest.mark.skipif(bool(cuda_driver_devices()), reason="there is a GPU, which takes minutes to check")
def test_without_a_gpu_it_ends_with_what_the_engines_report():
    done = run(sys.prefix)
    assert done.returncode == 1
    assert "PyTorch" in done.stdout
    assert "cpu alone; " in done.stdout
    assert "times" not in done.stdout
