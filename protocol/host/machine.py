"""What this process has of its machine: time of processors, and room on a disk."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

_THREADS = "/proc/self/task"
_MACHINE = Path("/proc/stat")
_KEPT_S = 1.0


class Waiting:
    """Time for which threads of this process could have run and had no processor; also by a quota of its cgroup."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._total_ns = 0
        self._read_at = -_KEPT_S
        self._reading = threading.Lock()

    def us(self) -> int:
        """Return the microseconds so far; 0 where Linux does not keep them.

        It takes a millisecond for a hundred threads, and all slots of a process ask at once: it is read once a second.
        """
        with self._reading:
            if time.monotonic() >= self._read_at + _KEPT_S:
                self._read()
                self._read_at = time.monotonic()
            return self._total_ns // 1000

    def _read(self) -> None:
        now: dict[str, int] = {}
        with suppress(OSError):
            for thread in os.listdir(_THREADS):
                with suppress(OSError, IndexError), open(f"{_THREADS}/{thread}/schedstat", "rb", 0) as file:
                    now[thread] = int(file.read(128).split()[1])
        # Of a thread that has ended, its time up to the last call stays.
        self._total_ns += sum(max(0, waited - self._last.get(thread, 0)) for thread, waited in now.items())
        self._last = now


waiting = Waiting()


def used_us() -> int:
    """Return the microseconds for which this process has had processors."""
    return time.process_time_ns() // 1000


def stolen_us() -> int:
    """Return the microseconds that the hypervisor has taken from the processors of this machine; 0 if unknown."""
    return _machine_us(7)


def busy_us() -> int:
    """Return the microseconds for which the processors of this machine have worked for programs; 0 if unknown."""
    # User, nice, system, and both kinds of interrupts.
    return _machine_us(0, 1, 2, 5, 6)


def _machine_us(*fields: int) -> int:
    try:
        ticks = list(map(int, _MACHINE.read_text("ascii").split(maxsplit=9)[1:9]))
        return sum(ticks[field] for field in fields) * 1_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0


def disk_free() -> int:
    """Return the free bytes of the disk for temporary files; 0 if it is so full that none can be made."""
    try:
        return shutil.disk_usage(tempfile.gettempdir()).free
    except OSError:
        return 0
