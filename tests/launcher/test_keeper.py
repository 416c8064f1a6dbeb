"""The keeper, with real processes."""

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
def keep():
    """Starts keepers of Python one-liners, and ends them."""
    keepers = []

    def start(code):
        keepers.append(
            subprocess.Popen(
                [sys.executable, "-m", "cluster_serving.launcher.services.supervisor", sys.executable, "-c", code]
            )
        )
        return keepers[-1]

    yield start
    for keeper in keepers:
        keeper.kill()
        keeper.wait()


def child(keeper):
    """Number of the kept process, once there is one."""
    children = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children")
    for _ in range(200):
        if numbers := children.read_text().split():
            return int(numbers[0])
        time.sleep(0.05)
    raise AssertionError("the keeper has started nothing")


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
def keeping(command, stdout=None):
    """A keeper whose first start has not failed, however soon the process dies."""
    code = (
        f"import sys; sys.argv = ['keeper', *{command!r}]\n"
        "from cluster_serving.launcher import keeper\nkeeper.SOON = 0.0\nkeeper.main()"
    )
    keeper = subprocess.Popen([sys.executable, "-c", code], stdout=stdout)
    try:
        yield keeper
    finally:
        keeper.terminate()
        assert keeper.wait(20) is not None


@pytest.mark.parametrize("output", [os.devnull, "/dev/full"])
def test_a_killed_process_comes_back(output):
    with open(output, "w") as stdout, keeping([sys.executable, "-c", LATER], stdout) as keeper:
        first = child(keeper)
        os.kill(first, signal.SIGKILL)
        assert is_gone(first)
        assert child(keeper) != first


def test_a_process_that_cannot_be_started_for_a_while_comes_back(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 1000")
    program.chmod(0o700)
    with keeping([str(program)]) as keeper:
        first = child(keeper)
        program.rename(tmp_path / "away")
        os.kill(first, signal.SIGKILL)
        assert is_gone(first)
        time.sleep(1)
        assert keeper.poll() is None
        (tmp_path / "away").rename(program)
        assert child(keeper) != first


def test_what_a_killed_process_has_started_ends_with_it(keep):
    keeper = keep(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LATER!r}])")
    kept = child(keeper)
    grandchild = child(SimpleNamespace(pid=kept))
    os.kill(kept, signal.SIGKILL)
    assert is_gone(grandchild)


def test_a_first_start_that_fails_is_not_repeated(keep):
    assert keep("raise SystemExit(3)").wait(20) == 3


def test_stopping_the_keeper_stops_the_process(keep):
    keeper = keep(LATER)
    kept = child(keeper)
    keeper.terminate()
    keeper.wait(20)
    assert is_gone(kept)


def test_a_process_does_not_outlive_its_keeper(keep):
    keeper = keep(LATER)
    kept = child(keeper)
    time.sleep(0.5)
    keeper.kill()
    keeper.wait()
    assert is_gone(kept)
