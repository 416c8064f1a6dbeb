"""The state folder: one folder per service and port that the launcher has started."""

import hashlib
import os
import tempfile
from pathlib import Path

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.settings.addresses import Address

HOME = "CLUSTER_SERVING_HOME"
"""Environment variable with the path of the state folder."""


def root() -> Path:
    """Return the state folder: $CLUSTER_SERVING_HOME, or ~/.cluster-serving.

    Flink's scripts cannot take a path with spaces. A folder of this user under /tmp stands in for such a path.
    """
    chosen = Path(os.environ.get(HOME) or Path.home() / ".cluster-serving").absolute()
    if not any(character.isspace() for character in str(chosen)):
        return chosen
    name = hashlib.sha256(os.fsencode(chosen)).hexdigest()[:12]
    folder = Path(tempfile.gettempdir(), f"cluster-serving-{os.getuid()}-{name}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise LaunchError(f"{folder} belongs to another user; set CLUSTER_SERVING_HOME to a folder without spaces")
    return folder


def folder(service: str, address: Address) -> Path:
    """Return the folder of a service, which the service makes."""
    return root() / (f"{service}-{address.port}" if address.is_local else f"{service}-{address.host}-{address.port}")


def addresses(service: str) -> list[Address]:
    """Return the addresses at which services of a kind were started on this machine."""
    names = [path.name.removeprefix(f"{service}-") for path in root().glob(f"{service}-*")]
    return [Address("localhost", int(name)) for name in sorted(names) if name.isdecimal()]
