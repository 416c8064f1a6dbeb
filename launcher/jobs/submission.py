"""Submission of a job to Flink, with `flink run`."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.flink_rest import MARK, cause
from cluster_serving.settings.addresses import Address

_JOB_ID = re.compile(r"JobID ([0-9a-f]{32})")


def submit(home: FlinkHome, address: Address, options: JobOptions, timeout: float) -> str:
    """Submit a job to the cluster whose REST endpoint is `address`. Return Flink's id of the job.

    Raises:
        LaunchError: If Flink does not accept the job within `timeout` seconds; the message has the cause and the file
            with the whole output.
    """
    home.logs.mkdir(parents=True, exist_ok=True)
    log = home.logs / f"submission-{options.redis.job}.log"
    # The options may hold a password, and all users can see a command line.
    with tempfile.NamedTemporaryFile("w", encoding="utf8", suffix=".json", dir=home.work) as file:
        file.write(options.to_json())
        file.flush()
        command: list[str | Path] = [home.path / "bin" / "flink", "run", "-d", "-m", str(address)]
        command += [f"-Dpipeline.global-job-parameters={MARK}:{options.submission}", "-pyclientexec", home.python]
        if address.is_local:
            command += ["-pyexec", home.python]
        # A module instead of a file, whose folder would come first on sys.path.
        command += ["-pym", "cluster_serving.job.main", "--options-file", file.name]
        try:
            code, printed = _run(command, home, timeout)
        except subprocess.TimeoutExpired as error:
            log.write_bytes(error.stdout or b"")
            raise LaunchError(
                f"Flink did not take the job within {timeout:.0f} s (startTimeout); output: {log}"
            ) from None
    output = printed.decode("utf8", "replace")
    log.write_text(output, "utf8")
    match = _JOB_ID.search(output)
    if code or not match:
        raise LaunchError(f"the job was not accepted: {cause(output)} (output: {log})")
    return match[1]


def _run(command: Sequence[str | Path], home: FlinkHome, timeout: float) -> tuple[int, bytes]:
    # In a session of its own: all its processes end together, and Ctrl-C ends only this command, which undoes the rest.
    with subprocess.Popen(  # noqa: S603 - Flink's own script, no shell
        command,
        cwd=home.work,
        env=home.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, output
