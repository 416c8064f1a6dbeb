"""What a start shows at its end."""

from pathlib import Path

import pytest

from cluster_serving.launcher.commands import report
from cluster_serving.launcher.config import file as config_file


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_stop_command_names_the_file_only_if_it_is_needed(folder, monkeypatch):
    def command(path, text):
        Path(path).write_text(f"modelPath: model\njobName: digits\n{text}")
        return report._stop(config_file.read(Path(path)), Path(path))

    elsewhere = "flinkRestUrl: localhost:9999\n"
    assert command("other.yaml", "") == "cluster-serving-stop digits"
    assert command("of mine.yaml", elsewhere) == "cluster-serving-stop digits -c 'of mine.yaml'"
    # The command reads the file of that name by itself.
    assert command("config.yaml", elsewhere) == "cluster-serving-stop digits"
    assert command("other.yaml", "") == "cluster-serving-stop digits -c other.yaml"
    Path("config.yaml").write_text("modelPath: 1")
    assert command("other.yaml", "") == "cluster-serving-stop digits -c other.yaml"
