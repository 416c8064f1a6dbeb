"""The entry point of pods, run as in a pod: what an image lacks is named."""

import subprocess
import sys

import pytest

from cluster_serving.launcher.targets.kubernetes import pod_templates


@pytest.fixture
def enter(tmp_path):
    """Run the entry point in a home of Flink that has the given files."""
    entry = tmp_path / "entry.sh"
    entry.write_text(pod_templates.entry())

    def enter(*files, **variables):
        for file in files:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
        environment = {"PATH": "/usr/bin:/bin", "FLINK_HOME": str(tmp_path), "HOME": str(tmp_path), **variables}
        command = ["bash", str(entry), "sh", "-c", "echo $HADOOP_CLASSPATH"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return enter


def test_a_folder_that_the_volume_lacks(enter):
    done = enter(CLUSTER_SERVING_FOLDERS="/nowhere/model-1")
    assert done.returncode == 1
    assert "/nowhere/model-1 is not on the volume" in done.stderr


def test_an_image_without_pyflink(enter):
    done = enter()
    assert done.returncode == 1
    assert "flink-python-*.jar" in done.stderr


def test_an_image_without_python(enter):
    done = enter("opt/flink-python-2.3.0.jar", CLUSTER_SERVING_PYTHON="no-such-python")
    assert done.returncode == 1
    assert "no program no-such-python" in done.stderr
    assert "flink.volume" in done.stderr


def test_an_image_without_this_package(enter, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    done = enter("opt/flink-python-2.3.0.jar", CLUSTER_SERVING_PYTHON=str(python))
    assert done.returncode == 1
    assert "no package pyflink" in done.stderr


@pytest.mark.parametrize(
    ("file", "added"),
    [("opt/flink-python-2.3.0.jar", "opt/flink-python-2.3.0.jar"), ("lib/flink-python-2.3.0.jar", "")],
)
def test_the_classes_of_pyflink_are_loaded_once_for_all_jobs(enter, tmp_path, file, added):
    paths = ":".join(path for path in sys.path if path)
    done = enter(file, CLUSTER_SERVING_PYTHON=sys.executable, PYTHONPATH=paths, CLUSTER_SERVING_MODE="thread")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (str(tmp_path / added) if added else "")
