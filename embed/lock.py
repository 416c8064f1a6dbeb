"""Lock of a folder: one program at a time writes to it.

A local folder is locked by the operating system, which frees the lock when the process ends. A folder elsewhere has a
file that its holder writes again every few seconds. One that does not change is of a process that was killed.
"""

from __future__ import annotations

import fcntl
import os
import posixpath
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from time import sleep

from pyarrow.fs import FileSystem, LocalFileSystem

from cluster_serving.protocol.errors import ServingError

RENEWED_S = 5.0
GONE_AFTER_S = 20.0
"""Seconds without a change after which the file of another process no longer counts."""

_NAME = "_score.lock"


def held(system: FileSystem, folder: str) -> AbstractContextManager[None]:
    """Hold the lock of a folder.

    Raises:
        ServingError: If another process holds it; the message says which one.
    """
    path = posixpath.join(folder, _NAME)
    return _locked(path) if isinstance(system, LocalFileSystem) else _leased(system, path)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    with open(path, "a+", encoding="utf8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise _taken(path, file.read()) from None
        file.truncate(0)
        file.write(_holder())
        file.flush()
        yield


@contextmanager
def _leased(system: FileSystem, path: str) -> Iterator[None]:
    if (found := _read(system, path)) is not None:
        sleep(GONE_AFTER_S)
        if _read(system, path) not in (found, None):
            raise _taken(path, found.partition("\n")[0])

    def write(number: int) -> None:
        with system.open_output_stream(path) as file:
            file.write(f"{_holder()}\n{number}".encode())

    def renew() -> None:
        for number in count(1):
            if ended.wait(RENEWED_S):
                return
            with suppress(OSError):
                write(number)

    write(0)
    ended, renewer = threading.Event(), threading.Thread(target=renew, daemon=True)
    renewer.start()
    try:
        yield
    finally:
        ended.set()
        renewer.join()
        with suppress(FileNotFoundError):
            system.delete_file(path)


def _read(system: FileSystem, path: str) -> str | None:
    with suppress(FileNotFoundError), system.open_input_stream(path) as file:
        return str(file.read(), "utf8")
    return None


def _holder() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _taken(path: str, holder: str) -> ServingError:
    folder = posixpath.dirname(path)
    return ServingError(
        f"{holder} scores into {folder} at the moment; wait until it has ended, or choose another folder"
    )
