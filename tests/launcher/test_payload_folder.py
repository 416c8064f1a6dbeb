"""Where the large inputs of a job are left."""

import os
from pathlib import Path

import pytest

from cluster_serving.launcher import config_file, payload_folder
from cluster_serving.launcher.errors import LaunchError


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


def test_what_others_put_there_is_not_taken(config, parent, tmp_path):
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


def test_without_a_folder_inputs_that_wait_are_not_lost(config):
    earlier = payload_folder.ensure(config())
    assert payload_folder.ensure(config(payloadFolder="none"), earlier) == ""
    Path(earlier, "a" * 32).touch()
    with pytest.raises(LaunchError, match=f"1 inputs of waiting requests are in {earlier}.*set payloadFolder to"):
        payload_folder.ensure(config(payloadFolder="none"), earlier)
