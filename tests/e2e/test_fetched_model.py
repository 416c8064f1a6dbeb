"""A model that the TaskManagers fetch: `modelPath` is an address."""

import hashlib
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from tests.chaos.faults import kept_processes
from tests.support.fixtures.waiting import wait_until
from tests.support.fixtures.web_server import WebServer
from tests.support.payloads import model_zoo


@pytest.fixture
def packed(tmp_path):
    """An archive of the digits model."""
    model_zoo.save_openvino_digits(tmp_path / "digits")
    return shutil.make_archive(str(tmp_path / "digits"), "gztar", tmp_path, "digits")


@pytest.fixture
def server(tmp_path, packed):
    server = WebServer(tmp_path)
    yield server
    server.stop()


def assert_right(queue):
    digits = model_zoo.digits_data()[0][:20]
    answers = [queue.predict({"x": digit}, timeout=60) for digit in digits]
    np.testing.assert_allclose(np.stack(answers), model_zoo.digits_mlp(digits), atol=0.01)


def sha256_of(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def output_of(done):
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_the_slots_of_a_machine_fetch_the_model_once(cluster, started, server, mode):
    address = f"{server.url}/digits.tar.gz?for={mode}"
    queue, _ = started(jobName=f"fetched-{mode}", modelPath=address, modelParallelism=2, executionMode=mode)
    assert_right(queue)
    assert server.fetched == ["/digits.tar.gz"]


def test_a_new_task_manager_does_without_a_store_whose_content_is_known(cluster, started, server, packed):
    queue, _ = started(jobName="failover", modelPath=f"{server.url}/digits.tar.gz#sha256={sha256_of(packed)}")
    server.stop()
    processes = set(kept_processes(cluster, "taskmanager"))
    for process in processes:
        os.kill(process, signal.SIGKILL)
    wait_until(lambda: not processes.intersection(kept_processes(cluster, "taskmanager")))
    assert_right(queue)


def test_an_archive_of_this_machine_and_a_restart_with_another_version(cluster, started, packed, tmp_path):
    queue, _ = started(jobName="versions", modelPath=f"file://{packed}")
    assert_right(queue)
    (tmp_path / "digits" / "readme.txt").write_text("another version")
    shutil.make_archive(str(tmp_path / "digits"), "gztar", tmp_path, "digits")
    done = cluster.restart("versions")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Switched to generation 2" in done.stdout
    assert_right(queue)
    assert list(cluster.cache.glob("*/*/digits/readme.txt"))


def test_a_wrong_checksum_is_told_on_the_terminal_without_the_password(cluster, server, packed):
    address = server.url.replace("http://", "http://me:hidden@") + f"/digits.tar.gz?key=hidden#sha256={'0' * 64}"
    done = cluster.start(jobName="wrong", modelPath=address)
    assert done.returncode == 1
    assert f"its SHA-256 is {sha256_of(packed)}, not {'0' * 64}" in output_of(done)
    logs = [file.read_text("utf8", "replace") for file in cluster.state.rglob("log/*") if file.is_file()]
    assert any("is not what was asked for" in log for log in logs)
    assert not [log for log in [*logs, output_of(done)] if "hidden" in log]


def test_a_model_that_does_not_exist_is_told_before_anything_is_submitted(cluster, server):
    done = cluster.start(jobName="none", modelPath=f"{server.url}/none.zip")
    assert done.returncode == 1
    assert f"there is no model at {server.url}/none.zip" in output_of(done)
    assert "Submitting" not in done.stdout
