"""Jobs that are handed over to Flink."""

import os
import signal
import time
from pathlib import Path

import pytest

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.targets import submission


def test_a_submission_that_takes_too_long_ends_with_all_its_processes(tmp_path):
    home = FlinkHome(tmp_path)
    home.work.mkdir()
    for folder in ("conf", "java/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "conf" / "config.yaml").write_text("{}")
    java = tmp_path / "java" / "bin" / "java"
    java.write_text("#!/bin/sh\necho submitting\nsleep 1000 &\necho $! > child\nwait")
    java.chmod(0o700)
    with pytest.raises(LaunchError, match="within 1 s"):
        submission.submit(home, ["-m", "localhost:1"], "start-1", "{}", home.logs / "submission-slow.log", timeout=1)
    assert (home.logs / "submission-slow.log").read_text() == "submitting\n"
    child = Path("/proc", (home.work / "child").read_text().strip())
    for _ in range(100):
        # Whoever it is left to may not have taken note of its end yet.
        if not child.exists() or "State:\tZ" in (child / "status").read_text():
            return
        time.sleep(0.05)
    os.kill(int(child.name), signal.SIGKILL)
    raise AssertionError("it goes on")
