"""Records of the ends of processes, which tell a process that a request has crashed from one that Flink has ended.

Workers of process mode have a record (`worker.record_end`). It is a file, because a process that crashes can do no more
than `faulthandler` does: write to an open file. A worker that is killed by another process, such as the kernel without
memory, leaves an empty record.
"""

import os
import re
import stat

STOPPED = "stopped"
"""Record of a worker that Flink has ended, as it ends all workers of a job that it restarts."""

PREFIX = "cluster-serving-worker-"
"""What the names of the files begin with."""

_NAME = re.compile(rf"{PREFIX}[a-z0-9_]+")
_MAX_BYTES = 16_000


def read_end(path: str) -> str:
    """Return the record of a worker: empty if it lives, was killed, or ran elsewhere; `STOPPED`; or its crash.

    A crash reads as a traceback, with the error in the last line.
    """
    # The path comes from Redis.
    if not _NAME.fullmatch(os.path.basename(path)):
        return ""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
                return ""
            text = file.read(_MAX_BYTES).decode("utf8", "replace")
    except OSError:
        return ""
    if text.endswith(STOPPED):
        return STOPPED
    error, _, stack = text.partition("\n")
    return "\n".join([*(line for line in stack.splitlines() if line and not line.startswith("Extension")), error])
