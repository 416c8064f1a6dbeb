"""Memory and processors of this machine, and the sizes of files."""

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def available_memory() -> int:
    """Return the bytes of memory that are free, or could be freed."""
    return min(_meminfo("MemAvailable"), total_memory())


def total_memory() -> int:
    """Return the bytes of memory and swap of this machine, or of the container that this process is in."""
    limits = [int(text) for path in _LIMITS if path.exists() and (text := path.read_text().strip()).isdecimal()]
    return min([_meminfo("MemTotal"), *limits]) + _meminfo("SwapTotal")


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())


def _meminfo(name: str) -> int:
    # Such as "MemTotal:       24689236 kB"
    values = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
    return int(values[name].split()[0]) * 1024
