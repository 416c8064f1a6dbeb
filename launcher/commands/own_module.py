"""A module of this package as a command: in a process of its own, which has engines that the launcher never loads."""

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

import typer

from cluster_serving.launcher.services.supervisor import python_command


def run(module: str, given: Mapping[str, object]) -> NoReturn:
    """Run a module with JSON on its standard input, and end with its exit code."""
    with subprocess.Popen(python_command(module), stdin=subprocess.PIPE, text=True) as process:  # noqa: S603 - no shell
        process.communicate(json.dumps(given))
        # Ctrl-C goes to both processes; this one waits for the other.
        with suppress(KeyboardInterrupt):
            process.wait()
    raise typer.Exit(process.returncode)
