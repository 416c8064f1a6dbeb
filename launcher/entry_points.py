"""Entry points of the commands; they run with the packages of the light client, and say what else is needed."""

import codecs
import io
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Callable

_SERVER = "server,embedded,openvino"
_OLDEST, _TOO_NEW = (3, 10), (3, 13)
"""The first Python that runs the commands, and the first one that Flink and its packages do not support."""
_PLAIN = {"→": "->", "✓": "+", "✗": "x", "…": "..."}


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


def _prepare_streams() -> None:
    """Let output neither fail at a character that its encoding lacks, nor because a stream is closed (`>&-`)."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The next file or connection of this process would get the number.
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            opened = open(number, "w" if number else "r", encoding="utf8", closefd=False)  # noqa: SIM115
            setattr(sys, name, opened)
    codecs.register_error("cluster_serving.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="cluster_serving.plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Return what stands in for characters that an encoding lacks, and where the text goes on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in missing), error.end


def _command() -> str:
    return Path(sys.argv[0]).name


def _check_python(extras: str) -> None:
    """End the command if it cannot run on this Python; only the load generator runs on those that Flink does not."""
    is_light = extras == "bench"
    if sys.version_info < _OLDEST or (sys.version_info >= _TOO_NEW and not is_light):
        # Imported here, as few need it.
        import platform

        wanted = "3.10 or later" if is_light else "3.10, 3.11 or 3.12"
        sys.exit(
            f"error: {_command()} needs Python {wanted}, and this is {platform.python_version()}: make an environment "
            "of another Python, such as with python3.12 -m venv .venv, and install cluster-serving there"
        )


def _entry_point(module: str, name: str, extras: str = _SERVER) -> Callable[[], None]:
    def run() -> None:
        _prepare_streams()
        if "--version" in sys.argv[1:]:
            # Imported here: nothing else needs it, and it parses messages with the package email.
            from importlib import metadata

            print(f"{_command()} {metadata.version('cluster-serving')}")
        else:
            _check_python(extras)
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
