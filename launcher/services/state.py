"""The state folder: one folder per service and port that the launcher has started."""

import os
from pathlib import Path

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.settings.addresses import Address

HOME = "CLUSTER_SERVING_HOME"
"""Environment variable with the path of the state folder."""


def root() -> Path:
    """Return the state folder: $CLUSTER_SERVING_HOME, or ~/.cluster-serving.

    Raises:
        LaunchError: If the variable is not set, and this user has no home folder, as in some containers.
    """
    if chosen := os.environ.get(HOME):
        return Path(chosen).absolute()
    try:
        return Path.home() / ".cluster-serving"
    except RuntimeError:
        raise LaunchError(
            f"user {os.getuid()} has no home folder for the state of the commands: set {HOME} to a folder that this "
            "user can write"
        ) from None


def write(file: Path, text: str) -> None:
    """Write a file that only this user can read, whole or not at all; make its folder if needed."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = file.with_name(f"{file.name}.{os.getpid()}")
    # Private before it is filled: addresses of Redis may hold a password.
    unfinished.touch(0o600)
    unfinished.write_text(text, "utf8")
    unfinished.replace(file)


def folder(service: str, address: Address) -> Path:
    """Return the folder in which a service keeps its state; it may not exist yet."""
    return root() / (f"{service}-{address.port}" if address.is_local else f"{service}-{address.host}-{address.port}")


def addresses(service: str) -> list[Address]:
    """Return the addresses at which services of a kind were started on this machine."""
    names = [path.name.removeprefix(f"{service}-") for path in root().glob(f"{service}-*")]
    return [Address("localhost", int(name)) for name in sorted(names) if name.isdecimal()]
