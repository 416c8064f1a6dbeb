"""Work in the background, for which other programs of the machine do not wait."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

AUTOGROUP = Path("/proc/self/autogroup")
"""File of Linux with the niceness of the session of this process, where sessions are scheduled as groups."""


def give_way(niceness: int) -> None:
    """Let all others come first; for a process with a session of its own, and what it starts in that session.

    Where Linux shares the processors among sessions first, the niceness of a process counts within its session alone:
    one that has a session of its own gets a whole core beside two busy ones.
    """
    os.nice(niceness)
    with suppress(OSError):
        AUTOGROUP.write_text(str(niceness))
