"""Output of the commands: styled on a terminal, plain and at full width in files and pipes."""

import sys
from contextlib import AbstractContextManager

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from cluster_serving.launcher.command_log import log

_FULL_WIDTH = 100_000

console = Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else _FULL_WIDTH)
errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """Show and log a warning."""
    log.warning(text)
    errors.print(f"warning: {text}", style="yellow")


def fail(text: str) -> None:
    """Show and log why the command fails."""
    log.error(text)
    errors.print(f"error: {text}", style="red")


def printable(text: str) -> str:
    """Return a text of others without the characters that control a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class Progress(AbstractContextManager["Progress"]):
    """Messages of progress: on a terminal finished steps and beneath them the present one; elsewhere plain lines."""

    def __init__(self) -> None:
        self._status: Status | None = console.status("") if console.is_terminal else None
        self._current = ""

    def __call__(self, text: str) -> None:
        """Show and log the step that begins now; the step before it is finished."""
        log.info(text)
        if self._status is None:
            console.print(text)
            return
        if self._current:
            console.print(f"✓ {self._current}", style="green")
        self._current = text
        self._status.update(escape(text))
        self._status.start()

    def __exit__(self, kind: object, *exc: object) -> None:
        if self._status:
            self._status.stop()
            if self._current:
                console.print("✗" if kind else "✓", self._current, style="red" if kind else "green")
