"""Memory of this machine, and the sizes of files."""

from pathlib import Path

from cluster_serving.protocol import cgroup

_MEMINFO = Path("/proc/meminfo")


def available_memory() -> int:
    """Return the bytes of memory that are free, or could be freed."""
    return min(_meminfo("MemAvailable"), total_memory())


def total_memory() -> int:
    """Return the bytes of memory and swap of this machine, or of the container that this process is in."""
    return int(min(_meminfo("MemTotal"), cgroup.memory_limit())) + _meminfo("SwapTotal")


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())


def _meminfo(name: str) -> int:
    # Such as "MemTotal:       24689236 kB"
    values = dict(line.split(":") for line in _MEMINFO.read_text().splitlines())
    return int(values[name].split()[0]) * 1024
