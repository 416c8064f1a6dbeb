"""Supervisor of one process: starts the process again when it dies, until the supervisor is told to stop.

Usage: python -m cluster_serving.launcher.services.supervisor [OPTION...] COMMAND...

Options: --abrupt, --after MODULE,ARGUMENT..., --scratch FOLDER; see `Supervisor`.

Redis, the front end, the JobManager and each TaskManager that are started on this machine have a supervisor each, so
that no single process is needed by all. On clusters, Flink and the platform do this work.

A supervisor starts a second one in its process group, which stands by, and starts that one again when it dies. If the
active supervisor dies, its process ends too; the one that stands by then starts the process and a new standby.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from types import FrameType

from cluster_serving.launcher.services import log_file
from cluster_serving.protocol.host.parent import die_with_parent
from cluster_serving.protocol.host.process_table import members, start_time

FIRST_PAUSE, LONGEST_PAUSE = 0.4, 10.0
"""Seconds between a death that comes soon after a start and the next start; doubled by every further one.

After any other death, the next start comes at once.
"""

SOON = 10.0
"""Seconds within which a death counts as a failed start.

If the very first start fails, there is no second one, unless a command has seen that the process serves.
"""

CONFIRM = signal.SIGUSR2
"""Signal that tells a supervisor that its process serves."""

GRACE = 8.0
"""Seconds until a process that was told to end is killed; fewer than the launcher gives the supervisor."""

STARTED = "{started}"
"""Stands in a command for the time at which the process starts, so that each start has a name of its own."""

RETIRE = signal.SIGUSR1
"""Signal that tells a supervisor to let its process end without a time limit."""

LOG_CHECK = 5.0
"""Seconds between two looks at the size of the log."""

_STANDBY_PAUSE = 0.2
_LOOK = 0.1
_NOT_STARTED = 127  # The exit code of a shell for a command that it cannot run.


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module in this Python, whatever files are in the current folder.

    Python puts the current folder at the front of `sys.path`, where a file may have the name of a module.
    """
    if hasattr(sys.flags, "safe_path"):  # Python 3.11 and later
        return [sys.executable, "-P", "-m", module, *arguments]
    run = f"import sys; sys.path.remove(''); import runpy; runpy.run_module({module!r}, None, '__main__', True)"
    return [sys.executable, "-c", run, *arguments]


class Supervisor:
    """Runs a command until it is told to stop.

    Args:
        command: Program and arguments.
        standby: Command of a supervisor that stands by.
        after: Python module and its arguments to run after every start but the first; empty for none.
        abrupt: True to have the process killed when the supervisor dies; otherwise it is told to end then.
        scratch: Folder for temporary files of the process, which is empty at each start; empty for none.
    """

    def __init__(
        self,
        command: Sequence[str],
        standby: Sequence[str],
        after: Sequence[str] = (),
        abrupt: bool = False,
        scratch: str = "",
    ) -> None:
        self._command = command
        self._standby_command = standby
        self._after = after
        self._scratch = scratch
        self._last_signal = signal.SIGKILL if abrupt else signal.SIGTERM
        self._child: subprocess.Popen[bytes] | None = None
        self._standby: subprocess.Popen[bytes] | None = None
        self._standby_lock = threading.Lock()
        self._stopping = False
        self._confirmed = False

    def run(self, first: bool = True) -> int:
        """Keep the process alive. Return its exit code after `stop`, or after a `first` start that failed."""
        threading.Thread(target=self._keep_standby, daemon=True).start()
        threading.Thread(target=_keep_log_small, daemon=True).start()
        try:
            return self._keep_alive(first)
        finally:
            # The standby would take over.
            with self._standby_lock:
                self._stopping = True
                if self._standby is not None:
                    self._standby.kill()

    def _keep_alive(self, first: bool) -> int:
        pause = 0.0
        while True:
            started = time.monotonic()
            code = self._run_once(() if first else self._after)
            failed = time.monotonic() - started < SOON
            if self._stopping or (first and failed and not self._confirmed):
                return code
            first = False
            pause = min(max(FIRST_PAUSE, 2 * pause), LONGEST_PAUSE) if failed else 0.0
            _say(f"{self._command[0]} ended with {code}; starting it again in {pause:.1f} s")
            time.sleep(pause)

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: end the process, and then the supervisor."""
        self.retire(number, frame)
        if self._child is not None:
            threading.Timer(GRACE, self._child.kill).start()

    def retire(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: tell the process to end, however long that takes, and end the supervisor after it."""
        self._stopping = True
        if self._child is not None:
            self._child.terminate()

    def confirm(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the first start of the process has not failed, however soon the process dies."""
        self._confirmed = True

    def _run_once(self, after: Sequence[str]) -> int:
        if self._stopping:
            return 0
        if self._scratch:
            # What a process leaves that was killed: 24 MB of each JVM of Flink.
            shutil.rmtree(self._scratch, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.makedirs(self._scratch, 0o700, exist_ok=True)
        command = [part.replace(STARTED, str(time.time_ns() // 1_000_000)) for part in self._command]
        # A session is a process group, too, which ends with the process. No command could find the process without its
        # supervisor, and its port would stay taken.
        try:
            self._child = subprocess.Popen(  # noqa: S603
                command, preexec_fn=partial(die_with_parent, self._last_signal), start_new_session=True
            )
        except OSError as error:
            _say(str(error))
            return _NOT_STARTED
        self._tell_standby()
        if self._stopping:
            # The signal came while the process was being started.
            self._child.terminate()
        if after:
            threading.Thread(target=_run_beside, args=(python_command(*after),), daemon=True).start()
        # Not reaped yet, so that no other process can have its number.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)
        # A TaskManager that is killed leaves its Python workers behind, with a copy of the model each.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        return self._child.wait()

    def _keep_standby(self) -> None:
        while True:
            with self._standby_lock:
                if self._stopping:
                    return
                # Its standard input ends when this process does.
                self._standby = subprocess.Popen(self._standby_command, stdin=subprocess.PIPE, bufsize=0)  # noqa: S603
            self._tell_standby()
            self._standby.wait()
            time.sleep(_STANDBY_PAUSE)

    def _tell_standby(self) -> None:
        """Tell the standby the number of the process, which may leave something behind when the standby takes over."""
        if self._child is not None and self._standby is not None and self._standby.stdin is not None:
            with contextlib.suppress(OSError):
                self._standby.stdin.write(b"%d\n" % self._child.pid)


def stand_by() -> None:
    """Wait until the active supervisor has died and all processes that it has started have ended."""
    started = [int(line) for line in sys.stdin]
    if not started:
        return
    leader = started[-1]
    deadline = time.monotonic() + GRACE
    while start_time(leader) is not None and time.monotonic() < deadline:
        time.sleep(_LOOK)
    while any(members(leader)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
        time.sleep(_LOOK)


def _say(text: str) -> None:
    # A full disk must not end the supervisor.
    with contextlib.suppress(OSError):
        print(f"supervisor: {text}", flush=True)


def _keep_log_small() -> None:
    while True:
        with contextlib.suppress(OSError):
            log_file.rotate(sys.stdout.fileno())
        time.sleep(LOG_CHECK)


def _run_beside(command: Sequence[str]) -> None:
    subprocess.run(command, preexec_fn=partial(die_with_parent, signal.SIGTERM), check=False)  # noqa: S603


def main() -> None:
    """Run the command of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stand-by", action="store_true", help="be the standby of the supervisor that starts this one")
    parser.add_argument("--abrupt", action="store_true")
    parser.add_argument("--after", default="")
    parser.add_argument("--scratch", default="")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = ["--after", arguments.after] if arguments.after else []
    options += ["--scratch", arguments.scratch] if arguments.scratch else []
    options += ["--abrupt"] if arguments.abrupt else []
    standby = python_command("cluster_serving.launcher.services.supervisor", "--stand-by", *options, *arguments.command)
    if arguments.stand_by:
        stand_by()
        _say("the active supervisor has died; starting its process again")
    after = arguments.after.split(",") if arguments.after else ()
    supervisor = Supervisor(arguments.command, standby, after, arguments.abrupt, arguments.scratch)
    signal.signal(signal.SIGTERM, supervisor.stop)
    signal.signal(RETIRE, supervisor.retire)
    signal.signal(CONFIRM, supervisor.confirm)
    # Blocked by `process.spawn`.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {CONFIRM})
    code = supervisor.run(first=not arguments.stand_by)
    # Not through sys.exit, which would wait for the timer.
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
