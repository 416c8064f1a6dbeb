import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from cluster_serving.launcher.services.process import Process, spawn, wait_until
from cluster_serving.protocol.host.process_table import start_time
from tests.support.fixtures.supervised import kept, supervisors


@pytest.fixture
def sleeper(tmp_path):
    command = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    process = spawn(command, tmp_path / "record.json", tmp_path / "log", tmp_path, os.environ)
    yield process
    process.stop()


def test_a_process_is_found_again_by_its_record(sleeper, tmp_path):
    assert Process.read(tmp_path / "record.json") == sleeper
    assert os.getsid(sleeper.pid) == sleeper.pid


def test_a_stopped_process_is_gone(sleeper, tmp_path):
    sleeper.stop()
    assert Process.read(tmp_path / "record.json") is None


def test_a_process_whose_active_supervisor_was_killed_is_found_and_stopped(sleeper, tmp_path):
    log = tmp_path / "log"
    assert wait_until(lambda: len(supervisors(sleeper.pid)) == 2 and "up" in log.read_text(), 20)
    os.kill(sleeper.pid, signal.SIGKILL)
    assert wait_until(lambda: log.read_text().splitlines().count("up") == 2, 20)
    assert Process.read(tmp_path / "record.json") == sleeper
    process = kept(sleeper.pid)
    sleeper.stop()
    assert wait_until(lambda: not supervisors(sleeper.pid), 20)
    assert wait_until(lambda: start_time(process) is None, 20)
    assert Process.read(tmp_path / "record.json") is None


def test_a_later_process_of_the_same_number_is_left_alone(sleeper, tmp_path):
    foreign = Process(sleeper.pid, sleeper.started - 1)
    foreign.stop()
    (tmp_path / "record.json").write_text(json.dumps({"pid": foreign.pid, "started": foreign.started}))
    assert Process.read(tmp_path / "record.json") is None
    assert sleeper.is_alive


def test_a_process_that_ignores_the_request_to_end_is_killed(tmp_path):
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    process = spawn([sys.executable, "-c", stubborn], tmp_path / "record", tmp_path / "log", tmp_path, os.environ)
    while not (tmp_path / "log").read_text():
        pass
    process.stop(grace=0.2)
    assert not process.is_alive


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"pid": 1}', "null"])
def test_a_damaged_record_means_no_process(tmp_path, text):
    (tmp_path / "record").write_text(text)
    assert Process.read(tmp_path / "record") is None


def test_a_process_whose_record_cannot_be_written_is_ended(tmp_path):
    command = [sys.executable, "-c", "import time; time.sleep(60)", str(tmp_path)]
    with pytest.raises(FileNotFoundError):
        spawn(command, tmp_path / "none" / "record", tmp_path / "log", tmp_path, os.environ)
    assert str(tmp_path) not in "".join(map(command_line, Path("/proc").glob("[0-9]*")))


def command_line(process):
    try:
        return (process / "cmdline").read_text("utf8", "replace")
    except OSError:
        return ""


def test_files_in_the_folder_of_a_process_are_not_executed(tmp_path):
    (tmp_path / "signal.py").write_text("raise SystemExit('executed')")
    process = spawn(["sleep", "60"], tmp_path / "record", tmp_path / "log", tmp_path, os.environ)
    time.sleep(1)
    try:
        assert process.is_alive
    finally:
        process.stop()


def test_a_process_finds_the_state_folder_from_where_it_runs(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLUSTER_SERVING_HOME", "state")
    process = spawn(["env"], tmp_path / "record", tmp_path / "log", tmp_path / "there", os.environ)
    assert wait_until(lambda: not process.is_alive, 20)
    assert f"CLUSTER_SERVING_HOME={tmp_path}/state\n" in (tmp_path / "log").read_text()


def test_a_supervisor_is_told_that_its_process_serves_before_it_is_ready_itself(tmp_path):
    code = f"import pathlib; file = pathlib.Path({str(tmp_path / 'starts')!r}); file.open('a').write('x')"
    process = spawn([sys.executable, "-c", code], tmp_path / "record", tmp_path / "log", tmp_path, os.environ)
    process.confirm()
    try:
        assert wait_until(lambda: (tmp_path / "starts").exists() and len((tmp_path / "starts").read_text()) > 1, 20)
    finally:
        process.stop()


def test_a_character_that_the_log_cannot_have_ends_nothing(tmp_path):
    code = "print('x → \\udcff', flush=True); import time; time.sleep(60)"
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    log = tmp_path / "log"
    process = spawn([sys.executable, "-c", code], tmp_path / "record", log, tmp_path, environment)
    assert wait_until(lambda: b"x ? ?" in log.read_bytes(), 20)
    process.stop()
