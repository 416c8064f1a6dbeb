"""Mistakes of users are answered in one line, which says what to do."""

import errno
import os
import socket
import subprocess

import pytest

from cluster_serving.launcher import cli
from tests.support.fixtures.commands import BIN, run


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


def test_a_full_disk_leaves_the_configuration_of_before(command, tmp_path):
    (tmp_path / "config.yaml").write_text("modelPath: mine\n")
    # No file may grow, as on a full disk.
    limited = subprocess.run(
        ["sh", "-c", f"ulimit -f 0; exec {BIN / 'cluster-serving-init'} --force"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (limited.returncode, limited.stderr) == (1, "error: cannot write config.yaml: File too large\n")
    assert (tmp_path / "config.yaml").read_text() == "modelPath: mine\n"
    assert not [*tmp_path.glob("*.unfinished")]


def test_the_error_of_a_full_disk_names_what_to_do():
    assert "make room, or name another folder" in cli._text(OSError(errno.ENOSPC, "No space left on device"))
    assert cli._text(PermissionError(errno.EACCES, "Permission denied", "a")).startswith("Permission denied: a; give ")
