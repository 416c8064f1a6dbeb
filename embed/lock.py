"""Lock of a local folder: one program at a time writes to it.

The operating system frees the lock when the process ends.
"""

from __future__ import annotations

import fcntl
import os
import posixpath
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from cluster_serving.protocol.errors import ServingError

_NAME = "_score.lock"


@contextmanager
def held(folder: str) -> Iterator[None]:
    """Hold the lock of a folder.

    Raises:
        ServingError: If another process holds it; the message says which one.
    """
    with open(posixpath.join(folder, _NAME), "a+", encoding="utf8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ServingError(
                f"{file.read()} scores into {folder} at the moment; wait until it has ended, or choose another folder"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
