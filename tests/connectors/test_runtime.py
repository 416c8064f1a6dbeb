"""What Flink's runtime does not do for Python."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

from cluster_serving.launcher.services.process_table import start_time
from tests.support.supervised import children
from tests.support.waiting import wait_until

# As in Flink: its process runs a script, and the script the worker.
FLINK = "import subprocess, sys; subprocess.run(['sh', '-c', '\"$0\" -c \"$1\" | cat', sys.executable, sys.argv[1]])"
WORKER = """
from cluster_serving.connectors.runtime import end_with_flink
end_with_flink()
print('up', flush=True)
import time
time.sleep(1000)
"""


def test_a_python_worker_ends_with_the_process_of_flink_that_was_killed(tmp_path):
    output = tmp_path / "output"
    with output.open("w") as file:
        flink = subprocess.Popen([sys.executable, "-c", FLINK, WORKER], stdout=file, start_new_session=True)
    try:
        wait_until(lambda: output.read_text() == "up\n")
        (script,) = children(flink.pid)
        below = [script, *children(script)]
        assert len(below) == 3
        flink.kill()
        wait_until(lambda: not any(map(start_time, below)))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(flink.pid, signal.SIGKILL)
        flink.wait()
