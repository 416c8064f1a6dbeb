"""The staging folder, through Hadoop's own client; on a local disk, which Hadoop treats as any file system."""

import os
import shutil
import time
from pathlib import Path, PurePosixPath

import pytest

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.targets.yarn.files import HadoopFiles
from cluster_serving.launcher.targets.yarn.hadoop import Hadoop
from tests.support.worlds import hosts, yarn


@pytest.fixture(scope="module")
def jvm():
    yarn.require()
    with Hadoop().client() as jvm:
        yield jvm


@pytest.fixture
def staging():
    folder = hosts.folder("staging")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def files(jvm, staging):
    return HadoopFiles(jvm, f"file://{staging}")


@pytest.fixture
def model(tmp_path):
    file = tmp_path / "model-1.tar"
    file.write_bytes(b"weights")
    return file


def shown(folder):
    return {path.name for path in folder.iterdir() if not path.name.endswith(".crc")}


def test_a_file_is_uploaded_once_and_read_by_this_user_alone(files, staging, model, said):
    first = files.ensure(model, "the model")
    assert first == files.ensure(model, "the model")
    assert [line.startswith("Uploading the model to ") for line in said] == [True]
    assert (staging / "model-1.tar").read_bytes() == b"weights"
    assert (staging / "model-1.tar").stat().st_mode & 0o777 == 0o600


def test_an_upload_that_fails_leaves_nothing(jvm, staging, model):
    shown_before = shown(staging)
    with pytest.raises(LaunchError, match="nowhere"), Hadoop().client() as own:
        HadoopFiles(own, f"file://{staging}").ensure(_unreadable(model), "the model")
    assert shown(staging) == shown_before


def _unreadable(model):
    class Gone(type(model)):
        """A file that is removed while the upload begins."""

        def stat(self, **_):
            return model.stat()

    return Gone("/nowhere/model-2.tar")


def test_a_folder_is_shared_with_all_users(files, staging, model):
    uri = files.ensure_folder("flink-1", {PurePosixPath("lib/a.jar"): model}, "Flink")
    assert uri == f"file:{staging}/flink-1"
    assert (staging / "flink-1" / "lib" / "a.jar").stat().st_mode & 0o777 == 0o644
    assert (staging / "flink-1" / "lib").stat().st_mode & 0o777 == 0o755


def test_a_folder_that_other_users_cannot_reach_is_refused(files, staging, model):
    staging.chmod(0o700)
    with pytest.raises(LaunchError, match=rf"other users cannot enter file:{staging}.*flink\.staging"):
        files.ensure_folder("flink-1", {PurePosixPath("lib/a.jar"): model}, "Flink")


def test_old_files_go_unless_they_are_used_or_among_the_latest_of_their_kind(files, staging):
    old = time.time() - 7200
    for number in range(8):
        for kind in ("model", "environment"):
            file = Path(staging, f"{kind}-{number}.tar")
            file.touch()
            os.utime(file, (old + number, old + number))
    files.prune({"model-1.tar"})
    kept = {f"{kind}-{number}.tar" for kind in ("model", "environment") for number in range(4, 8)}
    assert shown(staging) == kept | {"model-1.tar"}


def test_young_files_stay(files, staging):
    for number in range(8):
        Path(staging, f"model-{number}.tar").touch()
    files.prune(set())
    assert len(shown(staging)) == 8
