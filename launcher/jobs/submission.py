"""Submission of jobs to Flink, with `flink run`."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cluster_serving.job.main import SUBMITTED
from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import flink_jvm
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.flink_rest import cause
from cluster_serving.settings.addresses import Address


def log_of(home: FlinkHome, job: str) -> Path:
    """Return the file with the output of the last submission of a job."""
    return home.logs / f"submission-{job}.log"


def submit(home: FlinkHome, address: Address, options: JobOptions, timeout: float) -> str:
    """Submit a job to the cluster whose REST endpoint is `address`. Return Flink's id of the job.

    Raises:
        LaunchError: If Flink does not accept the job within `timeout` seconds; the message has the cause and the file
            with the whole output.
    """
    log = home.logs / f"submission-{options.redis.job}.log"
    ids, output = submit_all(home, address, [options], log, timeout)
    if not ids:
        raise LaunchError(f"the job was not accepted: {cause(output)} (output: {log})")
    return ids[options.redis.job]


def submit_all(
    home: FlinkHome, address: Address, jobs: Sequence[JobOptions], log: Path, timeout: float
) -> tuple[dict[str, str], str]:
    """Submit jobs in one run of `flink run`, which starts a JVM and a Python, and write its output to the file `log`.

    Return the ids of the jobs that Flink has accepted, by their names, and the output.

    Raises:
        LaunchError: If the run does not end within `timeout` seconds.
    """
    home.logs.mkdir(parents=True, exist_ok=True)
    command = flink_jvm.command(home, "client", home.logs / "flink-client.log", "run", "-d", "-m", str(address))
    command += ["-pyclientexec", home.python, *(["-pyexec", home.python] if address.is_local else [])]
    # A module instead of a file, whose folder would come first on sys.path.
    command += ["-pym", "cluster_serving.job.main"]
    with contextlib.ExitStack() as files:
        for options in jobs:
            # The options may hold a password, and all users can see a command line.
            file = files.enter_context(tempfile.NamedTemporaryFile("w", encoding="utf8", suffix=".json", dir=home.work))
            file.write(options.to_json())
            file.flush()
            command += ["--options-file", file.name]
        try:
            printed = _run(command, home, timeout)
        except subprocess.TimeoutExpired as error:
            log.write_bytes(error.stdout or b"")
            raise LaunchError(
                f"Flink did not take the job within {timeout:.0f} s (startTimeout); output: {log}"
            ) from None
    output = printed.decode("utf8", "replace")
    log.write_text(output, "utf8")
    accepted = [json.loads(line) for line in output.splitlines() if line.startswith(f'{{"{SUBMITTED}"')]
    return {job[SUBMITTED]: job["id"] for job in accepted}, output


def _run(command: Sequence[str], home: FlinkHome, timeout: float) -> bytes:
    # In a session of its own: all its processes end together, and Ctrl-C ends only this command, which undoes the rest.
    with subprocess.Popen(  # noqa: S603 - Flink's own program, no shell
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
    return output
