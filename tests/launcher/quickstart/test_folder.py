"""The folder and the ports of the quick start."""

import socket

import pytest

from cluster_serving.launcher.quickstart.folder import Folder, usable_port
from cluster_serving.launcher.services import state
from cluster_serving.settings.errors import SettingsError


def test_a_port_that_others_use_is_left_to_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(state.HOME, str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert usable_port(port, "redis") > port
        assert f"Port {port} is in use; redis gets " in capsys.readouterr().out
        # Our own server, which the start uses.
        (tmp_path / f"redis-{port}").mkdir()
        (tmp_path / f"redis-{port}" / "process.json").touch()
        assert usable_port(port, "redis") == port


def test_a_folder_keeps_its_ports(tmp_path):
    folder = Folder(tmp_path)
    defaults = folder.config.redis_address.port, folder.config.flink_address.port, folder.http_port
    assert defaults == (6379, 8081, 10020)
    folder.config_path.write_text("modelPath: model\nredisUrl: localhost:1\nflinkRestUrl: localhost:2\nhttp: {port: 3}")
    assert (folder.config.redis_address.port, folder.config.flink_address.port, folder.http_port) == (1, 2, 3)


@pytest.mark.parametrize("name", ["config.yaml", "model"])
def test_what_somebody_else_has_made_stays(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(SettingsError, match="not those of a quick start; name a new folder"):
        Folder(tmp_path).prepare()
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, "mine")]
