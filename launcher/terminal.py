"""Where the commands print: to people on a terminal, and plainly and at full width to files and pipes."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape
from rich.status import Status

_FULL_WIDTH = 100_000

console = Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else _FULL_WIDTH)
errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """A text that others wrote, without what a terminal might obey."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class Progress:
    """Says what happens: on a terminal what is done, and beneath it what is going on; elsewhere plain lines."""

    def __init__(self) -> None:
        self._status: Status | None = console.status("") if console.is_terminal else None
        self._current = ""

    def __call__(self, text: str) -> None:
        """Say what is going on now; what was said before is done."""
        if self._status is None:
            console.print(text)
            return
        if self._current:
            console.print(f"✓ {self._current}", style="green")
        self._current = text
        self._status.update(escape(text))
        self._status.start()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if self._status:
            self._status.stop()
            if self._current:
                console.print("✗" if kind else "✓", self._current, style="red" if kind else "green")
