"""Mistakes of users are answered in one line, which says what to do."""

import os
import socket

import pytest

from tests.support.fixtures.cluster import run


@pytest.fixture
def command(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "nowhere.yaml").write_text("modelPath: model\nredisUrl: localhost:1\nflinkRestUrl: localhost:1\n")
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(tmp_path / "state")}
    return lambda line: run(*line.split(), cwd=tmp_path, environment=environment)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cluster-serving-start -c folder", "error: folder cannot be read: Is a directory\n"),
        ("cluster-serving-start -c binary.yaml", "error: binary.yaml is not text in UTF-8: byte 1 is 0xff\n"),
        ("cluster-serving-http -c missing.yaml", "error: missing.yaml cannot be read: No such file or directory\n"),
        (
            "cluster-serving-cli start -c missing.yaml",
            "run cluster-serving-init to make one, or name another with -c\n",
        ),
        ("cluster-serving-cli list -c nowhere.yaml", "Connection refused; start it, or correct it\n"),
    ],
)
def test_the_line_names_the_file_or_the_server(command, line, message):
    ran = command(line)
    assert ran.stderr.endswith(message)
    assert ran.stderr.count("\n") == 1


def test_a_port_in_use_is_named_with_its_options(command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = command(f"cluster-serving-http --redisUrl redis://localhost:1 --port {taken.getsockname()[1]}")
    assert "Address already in use; set another interface or port (port, securePort)" in ran.stderr
    assert ran.stderr.count("\n") == 1
