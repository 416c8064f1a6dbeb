"""A folder of payload files, as each process finds, names and empties it; see `protocol.payloads.files`."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.payloads.names import is_folder, is_payload


class PayloadFolder:
    """A folder of payload files."""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def local(cls, path: bytes | None) -> PayloadFolder | None:
        """Return the folder at a path from a job, if it is on this machine and the job can read files written there."""
        if not path or not is_folder(os.fsdecode(os.path.basename(path))):
            return None
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            return None
        status = os.stat(path)
        # A file is for its owner and its group: root gives it to the folder's owner, others need the folder's group.
        readable = os.geteuid() in (0, status.st_uid) or status.st_mode & stat.S_ISGID
        return cls(os.fsdecode(path)) if readable else None

    def discard(self, fields: Mapping[str, object]) -> None:
        """Remove the file of a request that is not queued; see `protocol.entry.request_fields` for the fields."""
        if "data_file" in fields:
            remove(os.path.join(self.path, str(fields["data_file"])))

    def locate(self, name: bytes) -> bytes:
        """Return the path of a file; refuse a name that no client gives a file."""
        if not is_payload(os.fsdecode(name)):
            raise InvalidInput(f"field 'data_file' is {name[:64]!r}; expected 32 hexadecimal digits")
        return os.path.join(os.fsencode(self.path), name)


def discard(folder: bytes, name: bytes) -> None:
    """Remove a file, if its folder is on this machine."""
    if local := PayloadFolder.local(folder):
        with suppress(InvalidInput):
            remove(local.locate(name))


def remove(path: str | bytes) -> None:
    """Remove a file, if it exists."""
    with suppress(OSError):
        os.unlink(path)
