"""Processes that outlive the command that started them, and how a later command recognizes them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster_serving.launcher.services import state

_INTERVAL = 0.1

# Popen warns when it is forgotten while its process lives, which here is the normal case.
_started: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, slots=True)
class Process:
    """A process, told apart from a later one with the same number by its start time.

    Attributes:
        pid: Its number.
        started: Its start time in clock ticks since the machine booted; see `proc(5)`.
    """

    pid: int
    started: int

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return _start_time(self.pid) == self.started

    def stop(self, grace: float = 10.0) -> None:
        """Terminate it and its children, and wait until it is gone.

        Args:
            grace: Seconds until it is killed.
        """
        if not self.is_alive:
            return
        os.kill(self.pid, signal.SIGTERM)
        if not wait_until(lambda: not self.is_alive, grace):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            wait_until(lambda: not self.is_alive, grace)

    @classmethod
    def read(cls, record: Path) -> Process | None:
        """The process of a record file, or None if there is none or it is gone."""
        try:
            process = cls(**json.loads(record.read_text("utf8")))
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
) -> Process:
    """Start a process in a session of its own, so that it outlives this one and its terminal, under a keeper.

    What is returned is the keeper, which starts the process again when it dies (see `launcher.services.supervisor`).

    Args:
        command: Program and arguments.
        record: File for `Process.read`.
        log: File for standard output and error.
        cwd: Its working directory.
        env: Its environment.
        after: Python module and its arguments to run whenever the keeper has started the process again.
    """
    # Not what lies in its folder (-P): that may have the name of a module.
    keeper = [sys.executable, "-P", "-m", "cluster_serving.launcher.services.supervisor"]
    if after:
        keeper += ["--after", ",".join(after)]
    with log.open("ab") as output:
        child = subprocess.Popen(  # noqa: S603 - programs of Flink and Redis, no shell
            [*keeper, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            # As it is from here: the path may be relative.
            env={**env, state.HOME: str(state.root())},
            start_new_session=True,
        )
    process = Process(child.pid, _start_time(child.pid) or 0)
    try:
        _started.append(child)
        record.write_text(json.dumps(asdict(process)), "utf8")
    except BaseException:
        # Without its record nobody would find it again.
        process.stop()
        raise
    return process


def _start_time(pid: int) -> int | None:
    try:
        # The name in parentheses may hold anything, spaces and parentheses included.
        fields = Path(f"/proc/{pid}/stat").read_text("utf8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Poll a condition; False if it did not come true in `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_INTERVAL)
    return True


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one command at a time start or stop what lives in a folder, which need not exist."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Beside the folder: a lock in it would be gone when it is removed.
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
