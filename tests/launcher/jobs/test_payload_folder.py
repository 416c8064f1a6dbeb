"""Where the large inputs of a job are left."""

import os
from pathlib import Path

import pytest

from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import payload_folder


@pytest.fixture
def parent(tmp_path):
    path = tmp_path / "shared"
    path.mkdir()
    return path


@pytest.fixture
def config(tmp_path, parent):
    def make(**keys):
        path = tmp_path / "config.yaml"
        keys = {"modelPath": "m", "payloadFolder": str(parent)} | keys
        path.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()))
        return config_file.read(path)

    return make


def test_a_job_finds_its_folder_again_and_shares_it_with_no_other(config):
    folder = payload_folder.ensure(config())
    assert payload_folder.ensure(config(), folder) == folder
    others = [config(jobName="other"), config(redisUrl="localhost:6380"), config(redisUrl="elsewhere:6379")]
    assert len({folder, *map(payload_folder.ensure, others)}) == 4


def test_folders_of_other_users_are_not_taken(config, parent, tmp_path):
    folder = payload_folder.ensure(config())
    os.rename(folder, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", folder)
    found = payload_folder.ensure(config())
    assert found != folder
    os.unlink(folder)
    if os.geteuid() == 0:
        os.chown(found, 65534, 65534)
        assert payload_folder.ensure(config()) != found


def test_inputs_that_wait_move_with_the_folder(config, parent, tmp_path):
    earlier = payload_folder.ensure(config())
    Path(earlier, "a" * 32).write_text("waiting")
    (tmp_path / "new").mkdir()
    folder = payload_folder.ensure(config(payloadFolder=tmp_path / "new"), earlier)
    assert Path(folder, "a" * 32).read_text() == "waiting"
    # Clients that know the old one send through Redis until they have looked again.
    assert not os.path.exists(earlier)
    assert payload_folder.ensure(config(payloadFolder="none"), "/gone") == ""


def test_inputs_that_wait_are_found_however_this_machine_is_called(config):
    earlier = payload_folder.ensure(config(redisUrl="localhost:6379"))
    Path(earlier, "a" * 32).write_text("waiting")
    folder = payload_folder.ensure(config(redisUrl="127.0.0.1:6379"), earlier)
    assert Path(folder, "a" * 32).read_text() == "waiting"


def test_only_a_folder_of_the_job_moves_and_only_inputs_do(config, tmp_path):
    # A client may have written any name to Redis.
    (tmp_path / "home").mkdir()
    (tmp_path / "new").mkdir()
    moved = config(payloadFolder=tmp_path / "new")
    another = payload_folder.ensure(config(jobName="another"))
    earlier = payload_folder.ensure(config())
    os.symlink(tmp_path / "home", Path(tmp_path, Path(earlier).name))
    for folder in (tmp_path / "home", Path(another), tmp_path / Path(earlier).name):
        Path(folder, "a" * 32).touch()
        assert os.listdir(payload_folder.ensure(moved, str(folder))) == []
        assert Path(folder, "a" * 32).exists()

    Path(earlier, "key.pem").touch()
    Path(earlier, "a" * 32).symlink_to(tmp_path / "home")
    Path(earlier, "b" * 32).touch()
    assert os.listdir(payload_folder.ensure(moved, earlier)) == ["b" * 32]


def test_a_folder_that_is_written_in_another_way_stays(config, parent):
    folder = payload_folder.ensure(config())
    Path(folder, "a" * 32).touch()
    assert payload_folder.ensure(config(), f"{parent}/../{parent.name}/{Path(folder).name}") == folder
    assert Path(folder, "a" * 32).exists()


def test_without_a_folder_inputs_that_wait_are_not_lost(config):
    earlier = payload_folder.ensure(config())
    assert payload_folder.ensure(config(payloadFolder="none"), earlier) == ""
    Path(earlier, "a" * 32).touch()
    with pytest.raises(LaunchError, match=f"1 inputs of waiting requests are in {earlier}.*set payloadFolder to"):
        payload_folder.ensure(config(payloadFolder="none"), earlier)
