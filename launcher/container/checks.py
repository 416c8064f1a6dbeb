"""Checks of what an image may lack; without them Flink fails late, and with a message about something else."""

import platform
import sys
from importlib.util import find_spec

from cluster_serving.launcher.errors import LaunchError


def can_import_redis() -> None:
    """Check that redis-py has the package `async_timeout` where it needs it.

    An environment that was made by a later patch release of Python, and then copied, lacks the package.

    Raises:
        LaunchError: If the package is missing.
    """
    if sys.version_info < (3, 11, 3) and not find_spec("async_timeout"):
        raise LaunchError(
            f"redis-py needs async_timeout on Python {platform.python_version()}, and it is not installed: the "
            "environment was made by Python 3.11.3 or later; run pip install 'async-timeout>=4,<6' in the image"
        )


def can_embed_python() -> None:
    """Check that Flink can load Python into its own process.

    Raises:
        LaunchError: If Python's shared library is missing.
    """
    # Of Flink's own dependencies; the same search as Flink's.
    from find_libpython import find_libpython

    if not find_libpython():
        name = f"libpython{sys.version_info.major}.{sys.version_info.minor}"
        raise LaunchError(
            f"{name}.so is missing, which Flink loads for executionMode: thread; install it in the image (Debian: "
            f"apt-get install {name}), or set executionMode: process"
        )
