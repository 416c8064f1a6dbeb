"""The share of a machine that this process has: processors and memory, as its cgroups limit them (v1 and v2)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNTS = Path("/sys/fs/cgroup")


def cores() -> int:
    """Return the number of processors that this process may use: those of its affinity, or fewer by a quota of time."""
    quotas = [_quota(text.split()) for text in _values("", "cpu.max")]
    periods = _values("cpu", "cpu.cfs_period_us")
    quotas += [_quota(pair) for pair in zip(_values("cpu", "cpu.cfs_quota_us"), periods)]
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min([float(allowed), *quotas])))


def memory_limit() -> float:
    """Return the bytes of memory that this process may use with others; infinite if nothing limits them."""
    limits = [*_values("", "memory.max"), *_values("memory", "memory.limit_in_bytes")]
    return min([float(text) for text in limits if text.isdecimal()], default=math.inf)


def memory_available() -> float:
    """Return the bytes of memory that the limits leave to this process; infinite if nothing limits them.

    Files that were read and are not in use, which the system gives up first, count as free.
    """
    left = [
        *_left("", "memory.max", "memory.current", "inactive_file"),
        *_left("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ]
    return max(0, min(left, default=math.inf))


def _left(controller: str, limit: str, usage: str, idle: str) -> Iterator[int]:
    """Yield what is left of each limit of memory; `idle` is the line of `memory.stat` with what is given up first."""
    texts = (_values(controller, name) for name in (limit, usage, "memory.stat"))
    for most, used, stat in zip(*texts):
        if most.isdecimal():
            yield int(most) - int(used) + int(dict(line.split() for line in stat.splitlines()).get(idle, 0))


def _quota(pair: tuple[str, ...] | list[str]) -> float:
    """Return the processors that a quota and its period in microseconds allow; "max" and -1 are no limit."""
    quota, period = pair
    return int(quota) / int(period) if quota.isdecimal() else math.inf


def _values(controller: str, name: str) -> Iterator[str]:
    """Yield the values of a file in the cgroup of this process and in all above it; version 2 has no controllers."""
    for line in _MEMBERSHIP.read_text("utf8").splitlines() if _MEMBERSHIP.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        # In a container the path may be that of the host, while the mount shows the container's cgroup alone.
        root = _MOUNTS / controller
        place = root / path.lstrip("/")
        for folder in (place, *place.parents):
            if folder.is_relative_to(root) and (folder / name).is_file():
                yield (folder / name).read_text("utf8").strip()
