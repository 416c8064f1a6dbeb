"""Processes and process groups of this machine, read from `/proc`; see `proc(5)`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since the machine booted; None if it does not run."""
    fields = _stat(Path(f"/proc/{pid}"))
    return int(fields[19]) if fields else None


def members(group: int) -> Iterator[int]:
    """Yield the processes of a process group that run."""
    for process in Path("/proc").glob("[0-9]*"):
        fields = _stat(process)
        if fields and int(fields[2]) == group:
            yield int(process.name)


def _stat(process: Path) -> list[str] | None:
    """Return the fields of a process after its name; None for a process that has ended."""
    try:
        # The name in parentheses may hold anything, spaces and parentheses included.
        fields = (process / "stat").read_text("utf8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    # A process that nobody has waited for is still listed.
    return None if fields[0] in "ZX" else fields
