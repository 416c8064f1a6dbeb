"""The Python worker of process mode: it ends with Flink, and leaves a record of its end.

See `ends` for the record.
"""

import atexit
import faulthandler
import fcntl
import logging
import os
import select
import signal
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from cluster_serving.connectors.slot.ends import PREFIX, STOPPED

_KEEP_S = 24 * 3600

log = logging.getLogger(__name__)


@cache
def record_end() -> str:
    """End this worker with Flink, and record its end; return the path of the record, empty if it cannot be written.

    Flink ends its workers when it ends, unless it is killed. The threads of a worker that is left behind would go on
    reporting that its slots live.
    """
    descriptor, path = _open_record()
    # Flink runs a script, which runs the worker.
    script = os.getppid()
    flink = int(Path(f"/proc/{script}/stat").read_text("utf8", "replace").rpartition(")")[2].split()[1])
    threading.Thread(target=_end_with, args=(script, flink, descriptor), name="end with Flink", daemon=True).start()
    if path:
        faulthandler.enable(descriptor, all_threads=False)
        # Engines may crash while the interpreter takes down their threads; no request is the cause.
        atexit.register(_stopped, descriptor)
    return path


def _open_record() -> tuple[int, str]:
    """Make the record of this process, and remove old ones; return -1 and "" if no temporary file can be written."""
    try:
        for old in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            _remove_old(old)
        descriptor, path = tempfile.mkstemp(prefix=PREFIX)
        # A process holds the lock as long as it lives.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        log.warning("the end of this worker cannot be recorded: %s", error)
        return -1, ""
    return descriptor, path


def _remove_old(path: Path) -> None:
    # Its worker may live, or be that of another user.
    with suppress(OSError), path.open("rb") as file:
        if os.fstat(file.fileno()).st_mtime < time.time() - _KEEP_S:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _stopped(descriptor: int) -> None:
    faulthandler.disable()
    os.write(descriptor, STOPPED.encode())


def _end_with(script: int, flink: int, descriptor: int) -> None:
    poll = select.poll()
    try:
        of_flink = os.pidfd_open(flink)
        poll.register(of_flink, select.POLLIN)
        poll.register(os.pidfd_open(script), select.POLLIN)
    except ProcessLookupError:
        pass
    else:
        ended = [descriptor for descriptor, _ in poll.poll()]
        # Flink has ended this worker. The request that it computes may be why Flink itself ended.
        if descriptor >= 0 and of_flink not in ended:
            _stopped(descriptor)
    os.kill(os.getpid(), signal.SIGKILL)
