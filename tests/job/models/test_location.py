"""A shipped model is found where Flink and YARN unpack archives."""

import os
import subprocess
import sys

import pytest

from cluster_serving.job.models.location import locate
from cluster_serving.protocol.errors import ModelError

NAME = "model-0123456789"
PRINT = f"from cluster_serving.job.models.location import locate; print(locate({NAME!r}))"


@pytest.fixture
def archives(tmp_path):
    """The folders of the archives of two jobs in the temporary folder of a TaskManager."""
    folders = [tmp_path / f"python-dist-{job}" / "python-archives" for job in ("one", "two")]
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


def test_an_absolute_path_is_the_folder(tmp_path):
    assert locate(str(tmp_path / "model")) == tmp_path / "model"


def test_beside_the_working_directory_of_the_job(archives, monkeypatch):
    monkeypatch.chdir(archives[0])
    (archives[0] / NAME).mkdir()
    assert locate(NAME) == archives[0] / NAME


def test_among_the_archives_of_another_job_of_the_task_manager(archives, monkeypatch):
    monkeypatch.chdir(archives[0])
    (archives[1] / NAME).mkdir()
    assert locate(NAME) == archives[1] / NAME


def test_after_the_end_of_the_job_whose_working_directory_it_was(archives):
    (archives[1] / NAME).mkdir()
    program = f"import os; os.rmdir(os.getcwd()); {PRINT}"
    ran = subprocess.run([sys.executable, "-c", program], cwd=archives[0], capture_output=True, text=True, env=_here())
    assert ran.stdout.strip() == str(archives[1] / NAME), ran.stderr


def test_beside_the_environment_that_was_shipped(tmp_path):
    shipped = tmp_path / "container"
    (shipped / NAME).mkdir(parents=True)
    (shipped / "work").mkdir()
    (shipped / "environment").mkdir()
    program = f"import sys; sys.prefix = {str(shipped / 'environment')!r}; {PRINT}"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=shipped / "work", capture_output=True, text=True, env=_here()
    )
    assert ran.stdout.strip() == str(shipped / NAME), ran.stderr


def test_a_model_that_was_not_shipped(archives, monkeypatch):
    monkeypatch.chdir(archives[0])
    with pytest.raises(ModelError) as error:
        locate(NAME)
    for part in (f"the model {NAME} was not shipped", str(archives[0]), str(archives[1]), os.path.dirname(sys.prefix)):
        assert part in str(error.value)


def _here():
    # The folder of the tests is the current one, which the programs leave.
    return os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
