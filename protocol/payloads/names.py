"""Names of the files of large inputs, and of their folders (`protocol.payloads.files`)."""

import hashlib
import re

_FOLDER = re.compile(r"payloads-[0-9a-f]{16}-[0-9a-f]{32}")
_FILE = re.compile(r"[0-9a-f]{32}")


def folder_name(job: str, token: str) -> str:
    """Return the name of a job's folder, on a machine that 32 random hexadecimal digits (`token`) identify.

    `job` has also the address of Redis, since jobs of equal names may have their folders in the same place.
    """
    return f"payloads-{hashlib.sha256(job.encode()).hexdigest()[:16]}-{token}"


def is_payload(name: str) -> bool:
    """Return True for a name that clients give files."""
    return _FILE.fullmatch(name) is not None


def is_folder(name: str) -> bool:
    """Return True for the name of a folder of some job."""
    return _FOLDER.fullmatch(name) is not None
