"""Memory of the process while it answers bad requests of all kinds.

Usage: python -m tests.support.programs.memory [requests]
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path

from tests.support.fixtures.predictor import predictor, save_doubling
from tests.support.fixtures.serving_path import answers
from tests.support.payloads import hostile

_LARGEST = 1 << 20
"""Bytes of the largest entry that is repeated: the others take seconds, and are told from a leak by nothing."""


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def curve(requests: int, points: int = 10) -> list[int]:
    """Resident memory, in bytes, after each of `points` equal parts of the requests."""
    folder = Path(tempfile.mkdtemp())
    save_doubling(folder, 3)
    model = predictor(folder, "")
    every = (entry for make in hostile.GROUPS.values() for _, entry in make())
    bad = [entry for entry in every if sum(map(len, entry.values())) <= _LARGEST]
    endless = itertools.cycle(bad)
    memory = []
    for _ in range(points):
        for number in range(requests // points):
            answers(model, [next(endless) | {b"uri": b"bad %d" % number}])
        memory.append(resident())
    return memory


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    for part, size in enumerate(curve(count), 1):
        print(f"{part * count // 10:>8} requests {size / 2**20:8.1f} MiB")
