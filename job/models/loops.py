"""Loops in the graph of a model: a value that no client sends may keep it in one for ever."""

from collections.abc import Sequence
from pathlib import Path

_PART = 1 << 20


def has_operator(file: Path, names: Sequence[bytes]) -> bool:
    """Return True if the file of a graph, of Protocol Buffers, has one of these texts, such as names of operators."""
    longest = max(map(len, names))
    end = b""
    # Not mapped: overwriting the file would end the process.
    with file.open("rb") as opened:
        while part := opened.read(_PART):
            part = end + part
            if any(name in part for name in names):
                return True
            end = part[-longest:]
    return False
