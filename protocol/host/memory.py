"""Memory of this process, and of this machine."""

import os
from functools import cache
from pathlib import Path

from cluster_serving.protocol.host import cgroup

_MEMINFO = Path("/proc/meminfo")
_LONGEST = 256


def resident() -> int:
    """Return the bytes of memory that this process has; 0 on systems that do not tell in `/proc`."""
    try:
        pages = os.pread(_statm(os.getpid()), _LONGEST, 0).split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def available_memory() -> int:
    """Return the bytes of memory that are free, or could be freed."""
    return int(min(_meminfo("MemAvailable"), cgroup.memory_available()))


def total_memory() -> int:
    """Return the bytes of memory and swap of this machine, or of the container that this process is in."""
    return int(min(_meminfo("MemTotal"), cgroup.memory_limit())) + _meminfo("SwapTotal")


@cache
def _statm(process: int) -> int:
    """Return the file of this process: it is read around each batch, and to open it takes as long as twenty reads."""
    return os.open(f"/proc/{process}/statm", os.O_RDONLY | os.O_CLOEXEC)


def _meminfo(name: str) -> int:
    # Such as "MemTotal:       24689236 kB"
    values = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
    return int(values[name].split()[0]) * 1024
