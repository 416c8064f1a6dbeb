"""Submission of jobs to Flink, with `flink run`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster_serving.job.main import SUBMITTED
from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import flink_jvm
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.flink_rest import cause
from cluster_serving.settings.addresses import Address

MAIN = ("-pym", "cluster_serving.job.main")
"""The job's main program: a module instead of a file, whose folder would come first on sys.path."""


def to_cluster(home: FlinkHome, address: Address) -> list[str]:
    """Return the arguments of `flink run` for the cluster whose REST endpoint is `address`."""
    return ["-m", str(address), "-pyclientexec", home.python]


def on_this_machine(home: FlinkHome, address: Address) -> list[str]:
    """Return the arguments of `flink run` for a cluster that runs jobs with this interpreter."""
    return [*to_cluster(home, address), *(["-pyexec", home.python] if address.is_local else [])]


def submit(
    home: FlinkHome, arguments: Sequence[str], options: JobOptions, log: Path, timeout: float, with_jar: bool = False
) -> str:
    """Submit a job to the cluster that the arguments name. Return Flink's id of the job.

    `with_jar` ships PyFlink's classes to a cluster that lacks them.

    Raises:
        LaunchError: If Flink does not accept the job within `timeout` seconds; the message has the cause and the file
            with the whole output.
    """
    ids, output = submit_all(home, arguments, [options], log, timeout, with_jar)
    if not ids:
        raise LaunchError(f"the job was not accepted: {cause(output)} (output: {log})")
    return ids[options.redis.job]


def submit_all(
    home: FlinkHome,
    arguments: Sequence[str],
    jobs: Sequence[JobOptions],
    log: Path,
    timeout: float,
    with_jar: bool = False,
) -> tuple[dict[str, str], str]:
    """Submit jobs in one run of `flink run`, which starts a JVM and a Python, and write its output to the file `log`.

    Return the ids of the jobs that Flink has accepted, by their names, and the output.

    Raises:
        LaunchError: If the run does not end within `timeout` seconds.
    """
    home.logs.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as files:
        command = [*arguments, *MAIN, *(["--with-jar"] if with_jar else [])]
        for options in jobs:
            # The options may hold a password, and all users can see a command line.
            file = files.enter_context(tempfile.NamedTemporaryFile("w", encoding="utf8", suffix=".json", dir=home.work))
            file.write(options.to_json())
            file.flush()
            command += ["--options-file", file.name]
        output = run(home, ["run", "-d", *command], log, timeout)
    accepted = [json.loads(line) for line in output.splitlines() if line.startswith(f'{{"{SUBMITTED}"')]
    return {job[SUBMITTED]: job["id"] for job in accepted}, output


def run(
    home: FlinkHome, arguments: Sequence[str], log: Path, timeout: float, environment: Mapping[str, str] | None = None
) -> str:
    """Run Flink's client with arguments such as `run -d`, and return its output, which is also written to `log`.

    Raises:
        LaunchError: If the client does not end within `timeout` seconds.
    """
    command = flink_jvm.command(home, "client", home.logs / "flink-client.log", *arguments)
    # In a session of its own: all its processes end together, and Ctrl-C ends only this command, which undoes the rest.
    with subprocess.Popen(  # noqa: S603 - Flink's own program, no shell
        command,
        cwd=home.work,
        env=home.environment() | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            log.write_bytes(error.stdout or b"")
            raise LaunchError(
                f"Flink did not take the job within {timeout:.0f} s (startTimeout); output: {log}"
            ) from None
    output = printed.decode("utf8", "replace")
    log.write_text(output, "utf8")
    return output
