"""Large inputs in files: where client and job share a machine, Redis carries only the name.

What goes through Redis is copied a dozen times, and written to its append-only file. A client writes the file before it
queues the request; who answers or withdraws the request removes it. What is left behind by clients that died in between
is found by the job (`connectors.payloads`).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress

from redis.exceptions import ConnectionError, TimeoutError

from cluster_serving.protocol.errors import InvalidInput, RedisUnavailable, RequestTooLarge
from cluster_serving.protocol.inputs import Image, Input
from cluster_serving.protocol.keys import limits_key
from cluster_serving.protocol.scripts import FIND_PAYLOAD_FOLDER, Call, Procedure

MIN_BYTES = 1 << 16
"""Smaller inputs go through Redis, which costs as little."""

_FOLDER = re.compile(r"payloads-[0-9a-f]{16}-[0-9a-f]{32}")
_FILE = re.compile(rb"[0-9a-f]{32}")
_KNOWN_FOR = 5.0
# Of the file system: the folder may be beside the data of Redis, which must not run out of room.
_RESERVE = 0.1
_MOST_PARTS = 1024  # of one writev


class PayloadFolder:
    """A folder of payloads.

    Args:
        path: Where it is.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def here(cls, path: bytes | None) -> PayloadFolder | None:
        """The folder that a job named, if it is on this machine and the job can read what is written to it."""
        if not path or not _FOLDER.fullmatch(os.fsdecode(os.path.basename(path))):
            return None
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            return None
        status = os.stat(path)
        # A file is for its owner and its group: root gives it to the folder's owner, others need the folder's group.
        readable = os.geteuid() in (0, status.st_uid) or status.st_mode & stat.S_ISGID
        return cls(os.fsdecode(path)) if readable else None

    def write(self, parts: Sequence[bytes | memoryview]) -> str | None:
        """Write a payload.

        Args:
            parts: What it consists of; contiguous.

        Returns:
            Name of the file; None if there is no room for it, or no folder any more: send it through Redis.
        """
        if len(parts) > _MOST_PARTS:
            parts = [b"".join(parts)]
        size = sum(memoryview(part).nbytes for part in parts)
        name = uuid.uuid4().hex
        path = os.path.join(self.path, name)
        try:
            room = os.statvfs(self.path)
            if room.f_bavail * room.f_frsize < size + _RESERVE * room.f_blocks * room.f_frsize:
                return None
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        except OSError:
            return None
        try:
            if os.geteuid() == 0:
                folder = os.stat(self.path)
                os.fchown(file, folder.st_uid, folder.st_gid)
            written = os.writev(file, parts)
        except OSError:
            written = -1
        finally:
            os.close(file)
        if written == size:
            return name
        remove(path)
        return None

    def discard(self, fields: Mapping[str, object]) -> None:
        """Remove the file of a request that is not queued.

        Args:
            fields: See `protocol.entry.request_fields`.
        """
        if "data_file" in fields:
            remove(os.path.join(self.path, str(fields["data_file"])))

    def locate(self, name: bytes) -> bytes:
        """Path of a file.

        Raises:
            InvalidInput: This cannot be the name of one.
        """
        if not _FILE.fullmatch(name):
            raise InvalidInput(f"field 'data_file' is {name[:64]!r}; expected 32 hexadecimal digits")
        return os.path.join(os.fsencode(self.path), name)


class PayloadFolders:
    """Which folders jobs have named lately; for one thread or event loop, or several."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, PayloadFolder | None]] = {}

    def finding(self, job: str, inputs: Mapping[str, Input]) -> Procedure[PayloadFolder | None]:
        """Find where the inputs of a request go: a folder, or None for Redis.

        Args:
            job: `jobName`.
            inputs: Those of the request.
        """
        if not _is_large(inputs):
            return None
        until, folder = self._known.get(job, (0.0, None))
        if time.monotonic() >= until:
            folder = PayloadFolder.here((yield Call(FIND_PAYLOAD_FOLDER, [limits_key(job)])))
            self._known[job] = time.monotonic() + _KNOWN_FOR, folder
        return folder

    def refused(
        self, job: str, folder: PayloadFolder | None, fields: Mapping[str, object], error: BaseException
    ) -> None:
        """Clean up after a request that could not be queued.

        Args:
            job: `jobName`.
            folder: Where its inputs were left; None if they were not.
            fields: See `protocol.entry.request_fields`.
            error: Why.
        """
        if folder is None:
            return
        if isinstance(error, RedisUnavailable | ConnectionError | TimeoutError):
            # It may be queued all the same. Until Redis answers, no further files are written.
            self._known.pop(job, None)
        else:
            folder.discard(fields)


def _is_large(inputs: Mapping[str, Input]) -> bool:
    return sum(len(x.data) if isinstance(x, Image) else getattr(x, "nbytes", 0) for x in inputs.values()) >= MIN_BYTES


def folder_name(job: str, token: str) -> str:
    """Name of a folder.

    Args:
        job: Its `jobName` and where its Redis is: others of that name may have theirs in the same place.
        token: 32 hexadecimal digits that no other machine has by chance.
    """
    return f"payloads-{hashlib.sha256(job.encode()).hexdigest()[:16]}-{token}"


def is_payload(name: str) -> bool:
    """Whether a client may have given a file this name."""
    return _FILE.fullmatch(os.fsencode(name)) is not None


def discard(folder: bytes, name: bytes) -> None:
    """Remove a file, if its folder is on this machine."""
    if found := PayloadFolder.here(folder):
        with suppress(InvalidInput):
            remove(found.locate(name))


def too_large(size: int, limit: int) -> RequestTooLarge:
    """What is wrong with a request of more bytes than the job takes."""
    return RequestTooLarge(f"the request has {size} bytes, more than maxRequestBytes ({limit})")


def read(path: bytes, limit: int) -> bytes:
    """Read a payload.

    Args:
        path: From `PayloadFolder.locate`.
        limit: Most bytes that it may have.

    Raises:
        FileNotFoundError: There is no such file.
        InvalidInput: It cannot be read, or is no plain file.
        RequestTooLarge: It has more bytes.
    """
    try:
        # A link could lead anywhere, and a pipe would keep the reader waiting.
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


def remove(path: str | bytes) -> None:
    """Remove a file, if it is there."""
    with suppress(OSError):
        os.unlink(path)
