"""Output of the commands: styled on a terminal, plain and at full width in files and pipes."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape

from cluster_serving.launcher.command_log import PROGRESS, log
from cluster_serving.launcher.errors import LaunchError

if TYPE_CHECKING:
    from rich.status import Status

_FULL_WIDTH = 100_000
_PROGRESS_S = 10.0
"""Seconds between two lines about the progress of a step, in files and pipes."""

console = Console(
    highlight=False,
    markup=False,
    soft_wrap=True,
    width=None if sys.stdout.isatty() else _FULL_WIDTH,
    # Variables such as FORCE_COLOR ask for colours in a file, and not for lines that are drawn again.
    force_interactive=None if sys.stdout.isatty() else False,
)
errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


class _Problems(logging.Handler):
    """Shows warnings, and why a command fails."""

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno == logging.WARNING else "red"
        errors.print(f"{record.levelname.lower()}: {record.getMessage()}", style=style)


problems = _Problems(logging.WARNING)


def confirm(question: str, refusal: str) -> None:
    """Ask before something is lost; the answer no ends the command.

    Raises:
        LaunchError: If standard input has no answer, as in a script; its message is `refusal`.
    """
    try:
        agreed = typer.confirm(question)
    except typer.Abort:
        console.print()
        raise LaunchError(refusal) from None
    if not agreed:
        raise typer.Abort


def printable(text: str) -> str:
    """Return a text of others without the characters that control a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class Progress(logging.Handler, AbstractContextManager["Progress"]):
    """Shows the steps of a block: on a terminal those that are finished and the present one; elsewhere plain lines."""

    def __init__(self) -> None:
        super().__init__(PROGRESS)
        self._status: Status | None = console.status("") if console.is_interactive else None
        self._current = ""
        self._told = 0.0

    def __enter__(self) -> Progress:
        log.addHandler(self)
        return self

    def emit(self, record: logging.LogRecord) -> None:
        """Show the step that begins now, or how far it is; the step before it is finished."""
        text = record.getMessage()
        if record.levelno == PROGRESS:
            self._show_progress(text)
            return
        if record.levelno != logging.INFO:
            return
        self._told = time.monotonic()
        if self._status is None:
            console.print(text)
            return
        if self._current:
            console.print(f"✓ {self._current}", style="green")
        self._current = text
        self._status.update(escape(text))
        self._status.start()

    def _show_progress(self, text: str) -> None:
        if self._status is not None:
            self._status.update(escape(f"{self._current}: {text}"))
        elif time.monotonic() >= self._told + _PROGRESS_S:
            console.print(f"  {text}")
            self._told = time.monotonic()

    def __exit__(self, kind: object, *exc: object) -> None:
        log.removeHandler(self)
        if self._status:
            self._status.stop()
            if self._current:
                console.print("✗" if kind else "✓", self._current, style="red" if kind else "green")
