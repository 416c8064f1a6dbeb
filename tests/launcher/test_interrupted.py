"""Commands that are cut short undo what they have begun."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster_serving.job.options import JobOptions, ModelOptions, RedisOptions
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import lifecycle
from cluster_serving.launcher.jobs.flink_rest import FlinkRest
from cluster_serving.launcher.jobs.submission import submit
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.settings.addresses import Address

COMMAND = """
import signal
import time
from cluster_serving.launcher import cli

# Whoever runs the tests may ignore it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

def app():
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        print("undoing", flush=True)
        time.sleep(1)
        print("undone", flush=True)

cli._run(app)
"""


@pytest.mark.parametrize("numbers", [(signal.SIGHUP, signal.SIGHUP), (signal.SIGTERM, signal.SIGHUP)])
def test_a_second_signal_does_not_end_what_undoes(numbers):
    with subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True) as process:
        for number, said in zip(numbers, ("begun", "undoing"), strict=True):
            assert process.stdout.readline().strip() == said
            process.send_signal(number)
        assert process.stdout.read().strip() == "undone"
    assert process.returncode == 128 + numbers[0]


def test_a_submission_that_takes_too_long_ends_with_all_its_processes(tmp_path):
    home = FlinkHome(tmp_path)
    home.work.mkdir()
    (tmp_path / "bin").mkdir()
    flink = tmp_path / "bin" / "flink"
    flink.write_text("#!/bin/sh\necho submitting\nsleep 1000 &\necho $! > child\nwait")
    flink.chmod(0o700)
    options = JobOptions("slow", "start-1", ModelOptions("m"), RedisOptions("redis://localhost:1"))
    with pytest.raises(LaunchError, match="within 1 s"):
        submit(home, Address("localhost", 1), options, timeout=1)
    assert (home.logs / "submission-slow.log").read_text() == "submitting\n"
    child = Path("/proc", (home.work / "child").read_text().strip())
    for _ in range(100):
        # Whoever it is left to may not have taken note of its end yet.
        if not child.exists() or "State:\tZ" in (child / "status").read_text():
            return
        time.sleep(0.05)
    os.kill(int(child.name), signal.SIGKILL)
    raise AssertionError("it goes on")


def test_a_flink_that_is_gone_does_not_hide_why_a_start_failed(own_cluster):
    said = []
    with FlinkRest(f"http://localhost:{own_cluster.flink_port}") as rest:
        lifecycle._give_up(rest, "lost", "", "start-1", said.append)
    assert said[-1].startswith("job lost may still run: Flink at")
