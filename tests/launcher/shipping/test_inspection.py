"""What a start tells of a model in a store before anything is submitted."""

from zipfile import ZipFile

import pytest

from cluster_serving.job.remote.cache import VARIABLE
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.shipping.inspection import Inspection, inspect, look_again
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.web_server import WebServer


@pytest.fixture
def look(tmp_path, monkeypatch):
    """Inspects an address; returns what is known, and the warnings."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))

    def look(address):
        warnings = []
        look_again()
        return inspect(address, warnings.append), warnings

    return look


@pytest.fixture
def server(tmp_path):
    server = WebServer(tmp_path)
    yield server
    server.stop()


def test_a_folder_tells_engine_and_size(look, tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"network")
    assert look(f"file://{tmp_path}") == (Inspection("ONNX Runtime", "cluster-serving[onnx]", 7, text=False), [])
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    assert look(f"file://{tmp_path}") == (Inspection("ONNX Runtime", "cluster-serving[onnx]", 9, text=True), [])


def test_an_archive_tells_its_size(look, server, tmp_path):
    with ZipFile(tmp_path / "model.zip", "w") as packed:
        packed.writestr("net.onnx", b"network")
    assert look(f"{server.url}/model.zip") == (Inspection("", "", (tmp_path / "model.zip").stat().st_size), [])


def test_a_damaged_archive_is_told(look, server, tmp_path):
    (tmp_path / "model.zip").write_bytes(b"network")
    found, (warning,) = look(f"{server.url}/model.zip")
    assert found == Inspection()
    assert f"{server.url}/model.zip cannot be unpacked: BadZipFile" in warning


def test_a_model_that_does_not_exist_is_an_error(look, server):
    with pytest.raises(LaunchError, match="there is no model at http"):
        look(f"{server.url}/model.zip")


def test_a_folder_without_a_model_is_an_error(look, tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(LaunchError, match="holds no model. Found: notes.txt"):
        look(f"file://{tmp_path}")


def test_a_store_that_refuses_this_machine_may_take_the_task_managers(look, server, tmp_path):
    (tmp_path / "model.zip").touch()
    server.login = "me:secret"
    found, (warning,) = look(f"{server.url}/model.zip?token=hidden")
    assert found == Inspection()
    assert "the model is not checked before the TaskManagers fetch it: the store refuses" in warning
    assert "hidden" not in warning


def test_a_store_that_this_machine_does_not_reach_may_be_reached_by_the_task_managers(look):
    found, (warning,) = look(f"http://127.0.0.1:{free_port()}/model.zip")
    assert found == Inspection()
    assert "does not answer" in warning
