"""Where the commands print: to people on a terminal, and plainly and at full width to files and pipes."""

from __future__ import annotations

import sys

from rich.console import Console

_FULL_WIDTH = 100_000

console = Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else _FULL_WIDTH)
errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def printable(text: str) -> str:
    """A text that others wrote, without what a terminal might obey."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
