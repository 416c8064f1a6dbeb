"""Entry points of the commands; they run with the packages of the light client, and say what else is needed."""

import platform
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Callable

_SERVER = "server,embedded,openvino"
_PYTHON = (3, 10)


def load(module: str, name: str, extras: str) -> Any:
    """Return a function of one of our modules.

    Raises:
        SystemExit: If a package is not installed that the module needs; the message has the command that installs it.
    """
    try:
        return getattr(import_module(f"cluster_serving.{module}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("cluster_serving"):
            raise
        other = " (or another engine in place of openvino)" if extras == _SERVER else ""
        sys.exit(
            f"error: {_command()} needs {error.name}, which is not installed: "
            f"run pip install 'cluster-serving[{extras}]'{other}"
        )


def _command() -> str:
    return Path(sys.argv[0]).name


def _entry_point(module: str, name: str, extras: str = _SERVER) -> Callable[[], None]:
    def run() -> None:
        if "--version" in sys.argv[1:]:
            print(f"{_command()} {metadata.version('cluster-serving')}")
        elif sys.version_info < _PYTHON:
            sys.exit(f"error: {_command()} needs Python 3.10 or later; this is {platform.python_version()}")
        else:
            load(module, name, extras)()

    return run


init = _entry_point("launcher.cli", "init")
start = _entry_point("launcher.cli", "start")
stop = _entry_point("launcher.cli", "stop")
restart = _entry_point("launcher.cli", "restart")
shutdown = _entry_point("launcher.cli", "shutdown")
cli = _entry_point("launcher.cli", "cli")
umbrella = _entry_point("launcher.cli", "umbrella")
http = _entry_point("frontend.main", "main", "http")
bench = _entry_point("bench.load.main", "main", "bench")
