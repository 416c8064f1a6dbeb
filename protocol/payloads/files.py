"""Large inputs in files: if client and job share a machine, Redis carries only the name of the file.

Redis would copy a payload a dozen times, and write it to its append-only file. A client writes the file before it
queues the request; whichever process answers or withdraws the request removes the file. The job removes files of
clients that died in between (`connectors.stages.payloads`).
"""

from __future__ import annotations

import os
import stat
import time
import uuid
from collections.abc import Mapping, Sequence

from redis.exceptions import ConnectionError, TimeoutError

from cluster_serving.protocol.errors import InvalidInput, RedisUnavailable, RequestTooLarge
from cluster_serving.protocol.inputs import Image
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.payloads.base import PayloadFolder, remove
from cluster_serving.protocol.scripts import FIND_PAYLOAD_FOLDER, Call, Procedure
from cluster_serving.protocol.tensors import Encoded, Inputs

MIN_BYTES = 1 << 16
"""Smaller inputs go through Redis, which costs no more."""

_CACHE_S = 5.0
# Part of the file system that stays free, since the data of Redis may be in the same file system.
_RESERVE = 0.1
_MAX_PARTS = 1024  # of one writev


def write(folder: PayloadFolder, parts: Sequence[bytes | memoryview]) -> str | None:
    """Write a payload, given in contiguous parts, to a new file of a folder, and return its name.

    Return None if the disk is full or the folder is gone, so that Redis has to carry the payload.
    """
    if len(parts) > _MAX_PARTS:
        parts = [b"".join(parts)]
    size = sum(memoryview(part).nbytes for part in parts)
    name = uuid.uuid4().hex
    path = os.path.join(folder.path, name)
    try:
        disk = os.statvfs(folder.path)
        if disk.f_bavail * disk.f_frsize < size + _RESERVE * disk.f_blocks * disk.f_frsize:
            return None
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    except OSError:
        return None
    try:
        if os.geteuid() == 0:
            status = os.stat(folder.path)
            os.fchown(file, status.st_uid, status.st_gid)
        written = os.writev(file, parts)
    except OSError:
        written = -1
    finally:
        os.close(file)
    if written == size:
        return name
    remove(path)
    return None


class PayloadFolders:
    """Cache of the payload folders of jobs; may be shared by threads and event loops."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, PayloadFolder | None]] = {}

    def find(self, job: str, inputs: Inputs) -> Procedure[PayloadFolder | None]:
        """Find the folder for the inputs of a request; None if they go through Redis."""
        if not is_large(inputs):
            return None
        until, folder = self._known.get(job, (0.0, None))
        if time.monotonic() >= until:
            folder = PayloadFolder.local((yield Call(FIND_PAYLOAD_FOLDER, [JobKeys(job).limits])))
            self._known[job] = time.monotonic() + _CACHE_S, folder
        return folder

    def clean_up(
        self, job: str, folder: PayloadFolder | None, fields: Mapping[str, object], error: BaseException
    ) -> None:
        """Remove the file of a request that could not be queued because of an error; without a folder there is none."""
        if folder is None:
            return
        if isinstance(error, (RedisUnavailable, ConnectionError, TimeoutError)):
            # The request may be queued all the same. Until Redis answers, no further files are written.
            self._known.pop(job, None)
        else:
            folder.discard(fields)


def is_large(inputs: Inputs) -> bool:
    """Return True if the inputs of a request belong in a file."""
    if isinstance(inputs, Encoded):
        return len(inputs.data) >= MIN_BYTES
    return sum(len(x.data) if isinstance(x, Image) else getattr(x, "nbytes", 0) for x in inputs.values()) >= MIN_BYTES


def too_large(size: int, limit: int) -> RequestTooLarge:
    """Return the error for a request of more than `maxRequestBytes`."""
    return RequestTooLarge(f"the request has {size} bytes, more than maxRequestBytes ({limit})")


def read(path: bytes, limit: int) -> bytes:
    """Read a payload of at most `limit` bytes at a path from `PayloadFolder.locate`.

    Raises:
        FileNotFoundError: If there is no such file.
        InvalidInput: If the file cannot be read, or is no plain file.
        RequestTooLarge: If the file is larger than the limit.
    """
    try:
        # A link could lead to any file, and opening a pipe would block.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidInput("the file that field 'data_file' names is not a plain file")
            if status.st_size > limit:
                raise too_large(status.st_size, limit)
            return os.read(file, status.st_size)
        finally:
            os.close(file)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InvalidInput(f"the file that field 'data_file' names cannot be read: {error.strerror}") from None
