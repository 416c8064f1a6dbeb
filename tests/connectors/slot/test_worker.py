"""The Python worker of process mode: its end with Flink, and the record of its end."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from cluster_serving.connectors.slot.ends import STOPPED, read_end
from cluster_serving.protocol.host.process_table import start_time
from tests.support.fixtures.supervised import children
from tests.support.fixtures.waiting import wait_until

# As in Flink: its process runs a script, and the script the worker.
FLINK = """
import subprocess, sys
subprocess.run(['sh', '-c', '"$0" -c "$1" | cat', sys.executable, sys.argv[1]])
sys.stdin.read()
"""
WORKER = """
from cluster_serving.connectors.slot.worker import record_end
import atexit, ctypes, os, signal, threading, time

def crash():
    ctypes.string_at(0)

def late():
    crash()

{before}
print(record_end(), flush=True)
{after}
"""
WAITING = WORKER.format(before="", after="time.sleep(1000)")


@pytest.fixture
def flink(tmp_path):
    """Starts a process like Flink's with a worker; returns it, with the path of the record of its worker's end."""
    output = tmp_path / "output"
    processes = []

    def start(worker):
        with output.open("w") as file:
            command = [sys.executable, "-c", FLINK, worker]
            environment = os.environ | {"TMPDIR": str(tmp_path)}
            process = subprocess.Popen(
                command, stdout=file, stdin=subprocess.PIPE, env=environment, start_new_session=True
            )
        processes.append(process)
        wait_until(lambda: output.read_text().endswith("\n"))
        return process, output.read_text().strip()

    yield start
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def below(process):
    (script,) = children(process.pid)
    pids = [script, *children(script)]
    assert len(pids) == 3
    return pids


def test_a_python_worker_ends_with_the_process_of_flink_that_was_killed(flink):
    process, record = flink(WAITING)
    pids = below(process)
    process.kill()
    wait_until(lambda: not any(map(start_time, pids)))
    assert read_end(record) == ""


def test_a_worker_that_flink_ends_is_recorded_as_stopped(flink):
    process, record = flink(WAITING)
    script, *_ = below(process)
    os.kill(script, signal.SIGTERM)
    wait_until(lambda: read_end(record) == STOPPED)
    assert process.poll() is None


@pytest.mark.parametrize(
    "crash, error",
    [
        ("crash()", "Segmentation fault"),
        ("os.abort()", "Aborted"),
        ("os.kill(os.getpid(), signal.SIGBUS)", "Bus error"),
    ],
)
def test_a_crash_is_recorded_with_its_stack_and_its_error_in_the_last_line(flink, crash, error):
    _, record = flink(WORKER.format(before="", after=crash))
    wait_until(lambda: read_end(record))
    *stack, last = read_end(record).splitlines()
    assert last == f"Fatal Python error: {error}"
    assert 'File "<string>", line' in "".join(stack)


@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_process_that_ends_otherwise_leaves_an_empty_record(flink, end):
    process, record = flink(WORKER.format(before="", after=end))
    wait_until(lambda: not children(process.pid))
    assert read_end(record) == ""


@pytest.mark.parametrize("before", ["", "atexit.register(late)"])
def test_a_worker_that_ends_by_itself_has_not_crashed_though_it_crashes_on_the_way(flink, before):
    process, record = flink(WORKER.format(before=before, after=""))
    wait_until(lambda: not children(process.pid))
    assert read_end(record) == STOPPED


def test_a_path_that_is_no_record_is_not_read(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    link = tmp_path / "cluster-serving-worker-abc"
    link.symlink_to(secret)
    assert [read_end(str(path)) for path in (secret, link, tmp_path / "cluster-serving-worker-none", "")] == [""] * 4


def test_records_of_processes_that_are_gone_are_removed_after_a_day(flink, tmp_path):
    old, recent = (tmp_path / f"cluster-serving-worker-{name}" for name in ("old", "recent"))
    old.touch()
    recent.touch()
    _, living = flink(WAITING)
    for path in (old, living):
        os.utime(path, (time.time() - 100_000,) * 2)
    flink(WAITING)
    assert [os.path.exists(path) for path in (old, recent, living)] == [False, True, True]
