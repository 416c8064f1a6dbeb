import os
import subprocess
import sys

import pytest

from cluster_serving.bench.builds import Build
from cluster_serving.bench.suite.stack import HOME, Stack

BUSY = "sum(range(10_000_000)); print('done', flush=True); input()"


@pytest.fixture
def build(tmp_path):
    with Stack() as stack:
        yield Build(stack, tmp_path)


def test_processes_of_the_measured_installation_count_and_others_do_not(build):
    assert build.cpu() == build.memory() == 0.0
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    for home, counts in ((str(build.stack.home), True), ("elsewhere", False)):
        with subprocess.Popen([sys.executable, "-c", BUSY], env=os.environ | {HOME: home}, **pipes) as process:
            assert process.stdout.readline() == b"done\n"
            assert (build.cpu() > 0, build.memory() > 1e6) == (counts, counts)
            process.communicate(b"\n")
