import os
import subprocess
import sys

from cluster_serving.bench.suite.stack import HOME, Stack

BUSY = "sum(range(10_000_000)); print('done', flush=True); input()"


def test_processes_of_the_measured_installation_count_and_others_do_not():
    with Stack() as stack:
        assert stack.cpu() == stack.memory() == stack.share(0) == 0.0
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        for home, counts in ((str(stack.home), True), ("elsewhere", False)):
            with subprocess.Popen([sys.executable, "-c", BUSY], env=os.environ | {HOME: home}, **pipes) as process:
                assert process.stdout.readline() == b"done\n"
                assert (stack.cpu() > 0, stack.memory() > 1e6) == (counts, counts)
                process.communicate(b"\n")
