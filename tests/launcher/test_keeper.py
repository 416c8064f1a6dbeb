"""The keeper, with real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.fixture
def keep():
    """Starts keepers of Python one-liners, and ends them."""
    keepers = []

    def start(code):
        keepers.append(
            subprocess.Popen([sys.executable, "-m", "cluster_serving.launcher.keeper", sys.executable, "-c", code])
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


def test_a_killed_process_comes_back():
    keeper = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys; sys.argv = ['keeper', sys.executable, '-c', {LATER!r}]\n"
            "from cluster_serving.launcher import keeper\nkeeper.SOON = 0.0\nkeeper.main()",
        ]
    )
    try:
        first = child(keeper)
        os.kill(first, signal.SIGKILL)
        assert is_gone(first)
        assert child(keeper) != first
    finally:
        keeper.terminate()
        assert keeper.wait(20) is not None


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
