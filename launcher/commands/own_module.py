"""A module of this package as a command: in a process of its own, which has engines that the launcher never loads."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NoReturn

import typer

from cluster_serving.launcher.services.supervisor import python_command


def run(module: str, given: Mapping[str, object]) -> NoReturn:
    """Run a module with JSON on its standard input, and end with its exit code."""
    with started(module) as ask:
        ask(given)


@contextmanager
def started(module: str, is_early: bool = False) -> Iterator[Callable[[Mapping[str, object]], NoReturn]]:
    """Start a module, whose imports take a second, and provide the function that gives it its input; see `run`.

    The process is killed if the function was not called. One that starts early takes no Ctrl-C, unless it says so.
    """
    is_asked = False

    def ask(given: Mapping[str, object]) -> NoReturn:
        nonlocal is_asked
        is_asked = True
        process.communicate(json.dumps(given))
        # Ctrl-C goes to both processes; this one waits for the other.
        with suppress(KeyboardInterrupt):
            process.wait()
        raise typer.Exit(process.returncode)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_early else None
    with subprocess.Popen(python_command(module), stdin=subprocess.PIPE, text=True) as process:  # noqa: S603 - no shell
        if is_early:
            signal.signal(signal.SIGINT, before)
        try:
            yield ask
        finally:
            if not is_asked:
                process.kill()
