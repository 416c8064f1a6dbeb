"""What a start shows at its end."""

from pathlib import Path

import pytest

from cluster_serving.launcher import cli, report
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.jobs.lifecycle import Started
from tests.test_compose import SERVICES


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_stop_command_names_the_file_only_if_it_is_needed(folder, monkeypatch):
    def command(path, text):
        Path(path).write_text(f"modelPath: model\njobName: digits\n{text}")
        return cli._stop_command(config_file.read(Path(path)), Path(path))

    elsewhere = "flinkRestUrl: localhost:9999\n"
    assert command("other.yaml", "") == "cluster-serving-stop digits"
    assert command("of mine.yaml", elsewhere) == "cluster-serving-stop digits -c 'of mine.yaml'"
    # The command reads the file of that name by itself.
    assert command("config.yaml", elsewhere) == "cluster-serving-stop digits"
    assert command("other.yaml", "") == "cluster-serving-stop digits -c other.yaml"
    Path("config.yaml").write_text("modelPath: 1")
    assert command("other.yaml", "") == "cluster-serving-stop digits -c other.yaml"


def test_names_of_containers_do_not_leave_them(folder, monkeypatch):
    for name, value in SERVICES["serving"]["environment"].items():
        monkeypatch.setenv(name, value)
    Path("other.yaml").write_text("modelPath: model\njobName: digits")
    config = config_file.read(Path("other.yaml"))
    started = Started(config, f"{config.flink_rest_url}/#/job/running/1", "OpenVINO")
    text = str(report.started(started, cli._stop_command(config, Path("other.yaml"))))
    assert "http://localhost:8081/#/job/running/1" in text
    assert "digits on redis://localhost:6379\n" in text
    assert 'InputQueue(name="digits").predict' in text
    assert text.endswith("cluster-serving-stop digits")
    assert not any(f"//{service}:" in text for service in SERVICES)
