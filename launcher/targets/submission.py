"""Submission of jobs to Flink: with `flink run`, or through the gateway of a JobManager that was started here."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from redis.exceptions import RedisError

from cluster_serving.job.main import SUBMITTED, prepare
from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import flink_gateway, flink_jvm
from cluster_serving.launcher.services.flink_cause import cause
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.supervisor import python_command
from cluster_serving.protocol.host.background import give_way
from cluster_serving.settings.addresses import Address

_MODULE = "cluster_serving.job.program"

MAIN = ("-pym", _MODULE)
"""The job's main program: a module instead of a file, whose folder would come first on sys.path."""

_BACKGROUND = 10
"""Niceness of a client that takes six seconds of CPU while jobs on this machine may be answering requests."""


def to_cluster(home: FlinkHome, address: Address) -> list[str]:
    """Return the arguments of `flink run` for the cluster whose REST endpoint is `address`."""
    return ["-m", str(address), "-pyclientexec", home.python]


def on_this_machine(home: FlinkHome, address: Address) -> list[str]:
    """Return the arguments of `flink run` for a cluster that runs jobs with this interpreter."""
    return [*to_cluster(home, address), *(["-pyexec", home.python] if address.is_local else [])]


def submit(home: FlinkHome, command: Sequence[str], submission: str, options: str, log: Path, timeout: float) -> str:
    """Submit a job, whose program prints `submission` with the id that Flink gives the job. Return that id.

    The command and the options are as for `submit_all`.

    Raises:
        LaunchError: If Flink does not accept the job within `timeout` seconds; the message has the cause and the file
            with the whole output.
    """
    ids, output = submit_all(home, command, [options], log, timeout, niceness=_BACKGROUND)
    return _one(ids, submission, output, log)


def submit_here(home: FlinkHome, address: Address, options: JobOptions, timeout: float) -> str:
    """Submit a job to a Flink that was started here, whose JobManager has a gateway (`flink_gateway`). Return its id.

    Raises:
        LaunchError: As for `submit`.
    """
    log = home.log_of(options.redis.job)
    try:
        prepare(options)
    except RedisError as error:
        raise LaunchError(f"the job was not accepted: {error}") from None
    with _files(home, [options.to_json()]) as files, flink_gateway.opened(home, address) as gateway:
        command = python_command(_MODULE, "--gateway", *files)
        output = _run(home, command, log, timeout, watch=gateway.check, niceness=_BACKGROUND, stdin=gateway.port)
    return _one(_accepted(output), options.submission, output, log)


def submit_all(
    home: FlinkHome, command: Sequence[str], options: Iterable[str], log: Path, timeout: float, niceness: int = 0
) -> tuple[dict[str, str], str]:
    """Submit jobs in one run of `flink run`, which starts a JVM and a Python, and write its output to the file `log`.

    The command has the arguments that name the cluster and the main program, and then those of the program, but for the
    files with the options of the jobs, which are JSON.

    Return the ids of the jobs that Flink has accepted, by their submissions, and the output.

    Raises:
        LaunchError: If the run does not end within `timeout` seconds.
    """
    with _files(home, options) as files:
        output = run(home, ["run", "-d", *command, *files], log, timeout, niceness=niceness)
    return _accepted(output), output


@contextlib.contextmanager
def _files(home: FlinkHome, options: Iterable[str]) -> Iterator[list[str]]:
    """Provide the arguments that name files with these options, which are JSON."""
    arguments: list[str] = []
    with contextlib.ExitStack() as files:
        for text in options:
            # The options may hold a password, and all users can see a command line.
            file = files.enter_context(tempfile.NamedTemporaryFile("w", encoding="utf8", suffix=".json", dir=home.work))
            file.write(text)
            file.flush()
            arguments += ["--options-file", file.name]
        yield arguments


def _accepted(output: str) -> dict[str, str]:
    """Return the ids of the jobs that Flink has accepted, by their submissions."""
    accepted = [json.loads(line) for line in output.splitlines() if line.startswith(f'{{"{SUBMITTED}"')]
    return {job[SUBMITTED]: job["id"] for job in accepted}


def _one(ids: Mapping[str, str], submission: str, output: str, log: Path) -> str:
    if not ids:
        raise LaunchError(f"the job was not accepted: {cause(output)} (output: {log})")
    return ids[submission]


def run(
    home: FlinkHome,
    arguments: Sequence[str],
    log: Path,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    classpath: Sequence[str] = (),
    watch: Callable[[], None] = lambda: None,
    niceness: int = 0,
) -> str:
    """Run Flink's client with arguments such as `run -d`, and return its output, which is also written to `log`.

    `watch` is called about once a second. What it raises ends the client.

    Raises:
        LaunchError: If the client does not end within `timeout` seconds.
    """
    client_log = home.logs / "flink-client.log"
    command = flink_jvm.command(home, "client", client_log, *arguments, classpath=classpath)
    return _run(home, command, log, timeout, environment, watch, niceness)


def _run(
    home: FlinkHome,
    command: Sequence[str],
    log: Path,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    watch: Callable[[], None] = lambda: None,
    niceness: int = 0,
    stdin: int = subprocess.DEVNULL,
) -> str:
    """Run a program that submits jobs; see `run`."""
    deadline = time.monotonic() + timeout
    log.parent.mkdir(parents=True, exist_ok=True)
    # In a session of its own: all its processes end together, and Ctrl-C ends only this command, which undoes the rest.
    with (
        log.open("wb") as output,
        subprocess.Popen(  # noqa: S603 - a program of Flink or ours, no shell
            command,
            cwd=home.work,
            env=home.environment() | dict(environment or {}),
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=(lambda: give_way(niceness)) if niceness else None,
        ) as process,
    ):
        try:
            while not _has_ended(process):
                watch()
                if time.monotonic() > deadline:
                    raise LaunchError(
                        f"Flink did not take the job within {timeout:.0f} s (startTimeout); output: {log}"
                    )
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return log.read_text("utf8", "replace")


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        return False
    return True
