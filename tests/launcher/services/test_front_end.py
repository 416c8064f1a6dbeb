"""The front end that is started beside a job."""

import socket
from contextlib import nullcontext

import httpx
import pytest

from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import front_end
from cluster_serving.settings.addresses import Address
from cluster_serving.settings.errors import SettingsError
from tests.support.fixtures.redis_server import free_port


@pytest.fixture
def ensure(tmp_path, monkeypatch):
    """Starts the front end of a Redis that does not run, in a folder whose files have the names of modules."""
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "state"))
    port = free_port()
    for name in ("http", "signal", "socket"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('executed')")

    def ensure(redis, again=False, job="serving_stream", file="config.yaml"):
        path = tmp_path / file
        path.write_text(f"jobName: {job}\nmodelPath: m\nredisUrl: {redis}\nhttp: {{port: {port}}}\n")
        return front_end.ensure(config_file.read(path), path, again=again)

    yield ensure
    front_end.stop(Address("localhost", port))


def test_a_front_end_serves_one_redis(ensure):
    url = ensure("localhost:1")
    assert httpx.get(f"{url}/health/live").status_code == 200
    assert ensure("127.0.0.1:1") == url
    for again in (False, True):
        with pytest.raises(LaunchError, match=r"Redis at localhost:1, and not of localhost:2; set http.port in"):
            ensure("localhost:2", again)
    server = Address("localhost", httpx.URL(url).port)
    assert not front_end.stop(server, Address("localhost", 2))
    assert front_end.stop(server, Address("127.0.0.1", 1))


def test_a_front_end_that_runs_with_other_options_is_named_with_the_command_that_changes_them(
    ensure, redis_server, tmp_path, caplog
):
    caplog.set_level("INFO")
    redis = f"localhost:{redis_server.port}"
    ensure(redis, job="first")
    ensure(redis, job="first")
    said = caplog.messages[-1]
    assert said.startswith("Using the HTTP front end on port ")
    assert "cluster-serving-restart" not in said
    ensure(redis, job="second", file="other.yaml")
    said = caplog.messages[-1]
    assert f"whose options are those that {tmp_path / 'config.yaml'} had at its start; for those of" in said
    assert f"run cluster-serving-restart --http -c {tmp_path / 'other.yaml'}" in said
    ensure(redis, again=True, job="second", file="other.yaml")
    ensure(redis, job="second", file="other.yaml")
    assert "cluster-serving-restart" not in caplog.messages[-1]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("http: {prot: 10220}", r"line 2: http.prot is not an option; did you mean port\?"),
        ("http: 5", "line 2: http is not a mapping; expected options"),
        ("HTTP: {port: abc}", r"line 2: port is 'abc' \(text\)"),
        ("", None),
        ("http: {port: 10021}", None),
    ],
)
def test_mistakes_in_its_section_are_found_before_anything_is_started(tmp_path, section, message):
    file = tmp_path / "config.yaml"
    file.write_text(f"jobName: some\n{section}\n")
    with pytest.raises(SettingsError, match=message) if message else nullcontext():
        front_end.check(Config(modelPath="m"), file, starts=False)


def test_a_taken_port_is_found_before_anything_is_started(tmp_path, monkeypatch):
    monkeypatch.setenv("CLUSTER_SERVING_HOME", str(tmp_path / "state"))
    file, config = tmp_path / "config.yaml", Config(modelPath="m")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, free = taken.getsockname()[1], free_port()
        for section, key in (
            (f"port: {port}", "port"),
            (f"interface: '*', port: {port}", "port"),
            (f"port: {free}, grpcPort: {port}", "grpcPort"),
        ):
            file.write_text(f"http: {{{section}}}\n")
            with pytest.raises(LaunchError, match=rf"port {port} is taken.*; set http\.{key} in .*config\.yaml"):
                front_end.check(config, file, starts=True)
            # Nothing is said of a front end that is not to start.
            front_end.check(config, file, starts=False)
