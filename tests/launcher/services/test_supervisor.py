"""The supervisor, with real processes."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.fixture
def supervise():
    """Starts supervisors of Python one-liners, and ends them."""
    supervisors = []

    def start(code):
        supervisors.append(
            subprocess.Popen(
                [sys.executable, "-m", "cluster_serving.launcher.services.supervisor", sys.executable, "-c", code]
            )
        )
        return supervisors[-1]

    yield start
    for supervisor in supervisors:
        supervisor.kill()
        supervisor.wait()


def child(supervisor):
    """Return the number of the supervised process, once there is one."""
    children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children")
    for _ in range(200):
        if numbers := children.read_text().split():
            return int(numbers[0])
        time.sleep(0.05)
    raise AssertionError("the supervisor has started nothing")


def is_gone(pid):
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


LATER = "import time; time.sleep(1000)"


@contextmanager
def supervising(command, stdout=None):
    """A supervisor whose first start has not failed, however soon the process dies."""
    code = (
        f"import sys; sys.argv = ['supervisor', *{command!r}]\n"
        "from cluster_serving.launcher.services import supervisor\nsupervisor.SOON = 0.0\nsupervisor.main()"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=stdout)
    try:
        yield supervisor
    finally:
        supervisor.terminate()
        assert supervisor.wait(20) is not None


@pytest.mark.parametrize("output", [os.devnull, "/dev/full"])
def test_a_killed_process_comes_back(output):
    with open(output, "w") as stdout, supervising([sys.executable, "-c", LATER], stdout) as supervisor:
        first = child(supervisor)
        os.kill(first, signal.SIGKILL)
        assert is_gone(first)
        assert child(supervisor) != first


def test_a_process_that_cannot_be_started_for_a_while_comes_back(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 1000")
    program.chmod(0o700)
    with supervising([str(program)]) as supervisor:
        first = child(supervisor)
        program.rename(tmp_path / "away")
        os.kill(first, signal.SIGKILL)
        assert is_gone(first)
        time.sleep(1)
        assert supervisor.poll() is None
        (tmp_path / "away").rename(program)
        assert child(supervisor) != first


def test_children_of_a_killed_process_end_with_it(supervise):
    supervisor = supervise(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LATER!r}])")
    process = child(supervisor)
    grandchild = child(SimpleNamespace(pid=process))
    os.kill(process, signal.SIGKILL)
    assert is_gone(grandchild)


def test_a_first_start_that_fails_is_not_repeated(supervise):
    assert supervise("raise SystemExit(3)").wait(20) == 3


def test_stopping_the_supervisor_stops_the_process(supervise):
    supervisor = supervise(LATER)
    process = child(supervisor)
    supervisor.terminate()
    supervisor.wait(20)
    assert is_gone(process)


def test_a_process_does_not_outlive_its_supervisor(supervise):
    supervisor = supervise(LATER)
    process = child(supervisor)
    time.sleep(0.5)
    supervisor.kill()
    supervisor.wait()
    assert is_gone(process)
