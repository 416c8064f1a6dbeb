"""Processes that outlive the command that started them, and records by which later commands find them again."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import state
from cluster_serving.launcher.services.supervisor import CONFIRM, RETIRE, python_command
from cluster_serving.protocol.host.process_table import members, start_time
from cluster_serving.protocol.json_record import JsonRecord
from cluster_serving.settings.addresses import Address

_INTERVAL = 0.1
_CONNECT_TIMEOUT = 2.0
_ENCODING = "PYTHONIOENCODING"

# Popen warns when it is forgotten while its process lives, which here is the normal case.
_started: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class Process(JsonRecord):
    """A supervisor with its standby: a process group, told apart from a later one by the start time of its leader.

    Attributes:
        pid: Number of the group, and of its leader, the first active supervisor.
        started: Start time of the leader in clock ticks since the machine booted; see `proc(5)`.
    """

    pid: int
    started: int

    @property
    def is_alive(self) -> bool:
        """True while a supervisor of the group runs."""
        started = start_time(self.pid)
        if started is not None:
            return started == self.started
        # A later group may have the number, and no leader either, as the groups of daemons do.
        return any(b"services.supervisor" in _command_line(pid) for pid in members(self.pid))

    def stop(self, grace: float = 10.0) -> None:
        """Terminate supervisors and process, and wait until they have ended; kill them after `grace` seconds."""
        if not self.is_alive:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            if wait_until(lambda: not self.is_alive, grace):
                return

    def retire(self) -> None:
        """Tell supervisors and process to end, however long the process takes for it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, RETIRE)

    def confirm(self) -> None:
        """Tell the supervisor that its process serves, so that a death from now on is no failed start."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, CONFIRM)

    @classmethod
    def read(cls, record: Path) -> Process | None:
        """Return the process of a record file, or None if there is none or it has ended."""
        try:
            process = cls.from_json(record.read_text("utf8"))
        except (OSError, ValueError, TypeError):
            return None
        return process if process.is_alive else None


def spawn(
    command: Sequence[str | Path],
    record: Path,
    log: Path,
    cwd: Path,
    env: Mapping[str, str],
    after: Sequence[str] = (),
    abrupt: bool = False,
    scratch: Path | None = None,
) -> Process:
    """Start a process under a supervisor, in a session of its own: both outlive this command and its terminal.

    Return the supervisor, which `Process.read` finds by the record. The supervisor runs the Python module `after`, with
    its arguments, whenever it has started the process again. If the supervisor dies, the process is told to end, or,
    with `abrupt`, is killed. At each start of the process, the folder `scratch` is empty, and `supervisor.STARTED` in
    its command becomes the time. The log has standard output and error.
    """
    options = ["--after", ",".join(after)] if after else []
    options += ["--abrupt"] if abrupt else []
    options += ["--scratch", str(scratch)] if scratch else []
    # A character that the log cannot have, as in the name of a file, must not end the supervisor or the process.
    encoding = env.get(_ENCODING, "").partition(":")[0]
    # CONFIRM would end the supervisor if it came before the supervisor is ready for it.
    with log.open("ab") as output, _blocked(CONFIRM):
        child = subprocess.Popen(  # noqa: S603 - programs of Flink and Redis, no shell
            [*python_command("cluster_serving.launcher.services.supervisor", *options), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            # The state folder may be given as a relative path.
            env={**env, state.HOME: str(state.root()), _ENCODING: f"{encoding}:replace"},
            start_new_session=True,
        )
    process = Process(child.pid, start_time(child.pid) or 0)
    try:
        _started.append(child)
        record.write_text(process.to_json(), "utf8")
    except BaseException:
        # No later command could find a process without its record.
        process.stop()
        raise
    return process


@contextlib.contextmanager
def _blocked(number: signal.Signals) -> Iterator[None]:
    """Block a signal in this thread, and in the processes that it starts, which unblock it themselves.

    A `preexec_fn` would do the same, but copies a process with all its threads: gRPC breaks its connections then.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop_recorded(record: Path) -> bool:
    """Stop the process of a record file, and remove the file. Return True if there was a process."""
    process = Process.read(record)
    if process:
        process.stop()
    record.unlink(missing_ok=True)
    return process is not None


def remove_files(home: Path, keep: Collection[str]) -> None:
    """Remove the files and folders in the folder of a service, except those of some patterns."""
    for path in home.glob("*"):
        if not any(fnmatchcase(path.name, pattern) for pattern in keep):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def start(
    name: str,
    command: Sequence[str | Path],
    record: Path,
    log: Path,
    cwd: Path,
    env: Mapping[str, str],
    serves: Callable[[Process], bool],
    timeout: float,
) -> Process:
    """Start a process as `spawn` does, and wait until it serves, at most `timeout` seconds.

    Raises:
        LaunchError: If the process ends, or does not serve in time; it is stopped then. The message has the name, and
            the last error that was added to the log, or its last line.
    """
    offset = log.stat().st_size if log.exists() else 0
    process = spawn(command, record, log, cwd, env)
    served = wait_until(lambda: serves(process) or not process.is_alive, timeout)
    if not served or not process.is_alive:
        process.stop()
        lines = log.read_bytes()[offset:].decode("utf8", "replace").strip().splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        raise LaunchError(f"{name} did not start: {(errors or lines or ['no output'])[-1]} (log: {log})")
    process.confirm()
    return process


def is_listening(address: Address) -> bool:
    """Return True if something accepts connections at an address."""
    try:
        socket.create_connection((address.host, address.port), _CONNECT_TIMEOUT).close()
    except OSError:
        return False
    return True


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Poll a condition. Return False if it is not true after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_INTERVAL)
    return True


@contextlib.contextmanager
def locked(folder: Path, say: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Let one command at a time start or stop the service of a folder, which need not exist.

    `say` receives the command that this one waits for.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Beside the folder: a lock in it would be gone when it is removed.
        lock = folder.with_name(f"{folder.name}.lock").open("a+")
    except OSError as error:
        raise LaunchError(
            f"the state folder {folder.parent} cannot be used: {error.strerror}; set {state.HOME} to a folder that "
            "this user can write"
        ) from None
    with lock as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            say(f"Waiting for {file.read() or 'another command'}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(this_command())
        file.flush()
        yield


@functools.cache
def this_command() -> str:
    """Return command line, process and start of this command, for those that wait for it."""
    name, *arguments = sys.argv
    words = " ".join([Path(name).name, *arguments])[:100]
    return f"'{words}' (process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%H:%M:%S')})"
