"""The supervisor, with real processes."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import pytest

from cluster_serving.launcher.services import log_file
from cluster_serving.protocol.host.process_table import start_time
from tests.support.fixtures.supervised import children, kept, supervisors
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def supervise():
    """Starts supervisors of Python one-liners, and ends them."""
    supervisors = []

    def start(code, *options):
        module = "cluster_serving.launcher.services.supervisor"
        command = [sys.executable, "-m", module, *options, sys.executable, "-c", code]
        supervisors.append(subprocess.Popen(command, start_new_session=True))
        return supervisors[-1]

    yield start
    for supervisor in supervisors:
        kill_group(supervisor)


def kill_group(supervisor):
    with suppress(ProcessLookupError):
        os.killpg(supervisor.pid, signal.SIGKILL)
    supervisor.wait()


def child(supervisor):
    """Return the number of the supervised process, once there is one."""
    wait_until(lambda: kept(supervisor.pid))
    return kept(supervisor.pid)


def pair(supervisor):
    """Return the numbers of the active supervisor and of its standby, once there is one."""
    wait_until(lambda: len(supervisors(supervisor.pid)) == 2)
    return supervisors(supervisor.pid)


def is_gone(pid):
    wait_until(lambda: start_time(pid) is None)
    return True


LATER = "import time; time.sleep(1000)"


@contextmanager
def supervising(command, stdout=None):
    """A supervisor whose first start has not failed, however soon the process dies."""
    code = (
        f"import sys; sys.argv = ['supervisor', *{command!r}]\n"
        "from cluster_serving.launcher.services import supervisor\nsupervisor.SOON = 0.0\n"
        "supervisor.LOG_CHECK = 0.1\nsupervisor.main()"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code], stdout=stdout, start_new_session=True)
    try:
        yield supervisor
    finally:
        supervisor.terminate()
        assert supervisor.wait(20) is not None
        wait_until(lambda: not supervisors(supervisor.pid))


@pytest.mark.parametrize("output", [os.devnull, "/dev/full"])
def test_a_killed_process_comes_back(output):
    with open(output, "w") as stdout, supervising([sys.executable, "-c", LATER], stdout) as supervisor:
        first = child(supervisor)
        os.kill(first, signal.SIGKILL)
        assert is_gone(first)
        assert child(supervisor) != first


def test_the_log_of_a_process_stays_small(tmp_path):
    log = tmp_path / "log"
    # A tenth of the largest size between two looks of the supervisor.
    code = f"import time\nwhile True:\n print('x' * {log_file.LARGEST // 20}, flush=True)\n time.sleep(0.05)"
    with log.open("ab") as stdout, supervising([sys.executable, "-c", code], stdout):
        wait_until((tmp_path / f"log.{log_file.KEPT}").exists)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 1 + log_file.KEPT
    assert max(sizes) < 2 * log_file.LARGEST


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


@pytest.mark.parametrize("options", [[], ["--abrupt"]])
def test_a_process_whose_supervisor_dies_is_told_to_end_or_killed(supervise, tmp_path, options):
    told, ready = tmp_path / "told", tmp_path / "ready"
    code = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(told)!r}).touch(), sys.exit()))\n"
        f"pathlib.Path({str(ready)!r}).touch()\ntime.sleep(1000)"
    )
    supervisor = supervise(code, *options)
    # The third process is started by the standby of the standby.
    for _ in range(2):
        active, _ = pair(supervisor)
        process = child(supervisor)
        wait_until(ready.exists)
        ready.unlink()
        os.kill(active, signal.SIGKILL)
        assert is_gone(process)
        assert told.exists() == (not options)
        told.unlink(missing_ok=True)
    wait_until(ready.exists)


def test_each_start_has_an_empty_folder_and_a_name_of_its_own(supervise, tmp_path):
    folder, told = tmp_path / "scratch", tmp_path / "told"
    folder.mkdir()
    (folder / "of before").touch()
    code = (
        f"import os; print('{{started}}', os.listdir({str(folder)!r}), file=open({str(told)!r}, 'a')); "
        f"open({str(folder / 'left')!r}, 'w'); {LATER}"
    )
    active, _ = pair(supervise(code, "--scratch", str(folder)))
    wait_until((folder / "left").exists)
    # The standby, which takes over, does the same.
    os.kill(active, signal.SIGKILL)
    wait_until(lambda: len(told.read_text().splitlines()) == 2)
    (first, *before), (second, *after) = map(str.split, told.read_text().splitlines())
    assert int(first) < int(second)
    assert before == after == ["[]"]


def test_children_of_a_killed_process_end_with_it(supervise):
    supervisor = supervise(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LATER!r}])")
    process = child(supervisor)
    wait_until(lambda: children(process))
    (grandchild,) = children(process)
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


def test_a_process_does_not_outlive_its_supervisors(supervise):
    supervisor = supervise(LATER)
    pair(supervisor)
    process = child(supervisor)
    kill_group(supervisor)
    assert is_gone(process)


def test_the_process_of_a_killed_supervisor_comes_back_and_so_does_the_standby(supervise):
    supervisor = supervise(LATER)
    processes = []
    for _ in range(2):
        active = next(number for number in pair(supervisor) if child(supervisor) in children(number))
        processes.append(child(supervisor))
        os.kill(active, signal.SIGKILL)
        assert is_gone(active)
        assert is_gone(processes[-1])
    assert child(supervisor) not in processes
    assert len(pair(supervisor)) == 2


def test_a_killed_standby_comes_back_and_the_process_goes_on(supervise):
    supervisor = supervise(LATER)
    process = child(supervisor)
    (standby,) = {*pair(supervisor)} - {supervisor.pid}
    os.kill(standby, signal.SIGKILL)
    assert is_gone(standby)
    assert standby not in pair(supervisor)
    assert child(supervisor) == process


def test_a_process_killed_with_its_supervisor_comes_back_and_leaves_no_children(supervise):
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    supervisor = supervise(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {stubborn!r}])")
    process = child(supervisor)
    wait_until(lambda: children(process))
    (grandchild,) = children(process)
    pair(supervisor)
    time.sleep(0.5)
    for victim in (supervisor.pid, process):
        os.kill(victim, signal.SIGKILL)
    assert is_gone(grandchild)
    assert child(supervisor) != process
