"""Keeps one process alive: starts it again when it dies, until told to stop.

Usage: python -m cluster_serving.launcher.services.supervisor [--after MODULE,ARGUMENT...] COMMAND ARGUMENT...

Redis, the JobManager and each TaskManager that are started on this machine have a keeper of their own, so that there is
no single supervisor whose death would matter. On clusters, this is the work of Flink and of the platform.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from types import FrameType

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0
"""Seconds between a death and the next start; doubled by every death that comes soon after a start."""

SOON = 10.0
"""Seconds within which a death counts as a failed start. If the very first start fails, it is not tried again."""

GRACE = 8.0
"""Seconds that the process gets to end before it is killed; less than the launcher gives its keeper."""

_PR_SET_PDEATHSIG = 1
_NOT_STARTED = 127  # as a shell says it


class Keeper:
    """Runs a command until it is told to stop.

    Args:
        command: Program and arguments.
        after: Python module and its arguments to run after every start but the first; empty for none.
    """

    def __init__(self, command: Sequence[str], after: Sequence[str] = ()) -> None:
        self._command = command
        self._after = after
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def run(self) -> int:
        """Keep the process alive; returns its exit code once it was told to stop, or failed at its first start."""
        pause = FIRST_PAUSE
        first = True
        while True:
            started = time.monotonic()
            code = self._run_once(() if first else self._after)
            failed = time.monotonic() - started < SOON
            if self._stopping or (first and failed):
                return code
            first = False
            pause = min(2 * pause, LONGEST_PAUSE) if failed else FIRST_PAUSE
            _say(f"{self._command[0]} ended with {code}; starting it again in {pause:.1f} s")
            time.sleep(pause)

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: end the process, and then the keeper."""
        self._stopping = True
        if self._child is not None:
            self._child.terminate()
            threading.Timer(GRACE, self._child.kill).start()

    def _run_once(self, after: Sequence[str]) -> int:
        if self._stopping:
            return 0
        # In a group of its own, which ends with it.
        try:
            self._child = subprocess.Popen(self._command, preexec_fn=_die_with_parent, process_group=0)  # noqa: S603
        except OSError as error:
            _say(str(error))
            return _NOT_STARTED
        if self._stopping:
            # The signal came while the process was being started.
            self._child.terminate()
        if after:
            threading.Thread(target=_run_beside, args=([sys.executable, "-P", "-m", *after],), daemon=True).start()
        # Not reaped yet, so that nothing else can have its number.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        # A TaskManager that is killed leaves its Python workers behind, with a copy of the model each.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        return self._child.wait()


def _say(text: str) -> None:
    # A full disk must not end what is kept alive.
    with contextlib.suppress(OSError):
        print(f"keeper: {text}", flush=True)


def _run_beside(command: Sequence[str]) -> None:
    subprocess.run(command, preexec_fn=_die_with_parent, check=False)  # noqa: S603


def _die_with_parent() -> None:
    # Without its keeper nothing would know the process any more, and its port would stay taken.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def main() -> None:
    """Run the command of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--after", default="")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    keeper = Keeper(arguments.command, arguments.after.split(",") if arguments.after else ())
    signal.signal(signal.SIGTERM, keeper.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = keeper.run()
    # Not through sys.exit, which would wait for the timer.
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
