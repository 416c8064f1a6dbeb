"""CPU time and memory of the processes on this machine that take part, found by the ports they listen on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil

_LOCAL = {"localhost", "127.0.0.1", "::1", ""}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the processes at one moment.

    Attributes:
        time: `time.perf_counter`.
        cpu: Role → CPU seconds used so far, of user and system, children included.
        memory: Role → resident bytes.
    """

    time: float
    cpu: Mapping[str, float]
    memory: Mapping[str, int]


class Processes:
    """Processes by role; a process and its descendants share one.

    Args:
        roles: Role → process ids.
    """

    def __init__(self, roles: Mapping[str, Iterable[int]]) -> None:
        self._roots = {role: [p for pid in pids if (p := _process(pid))] for role, pids in roles.items()}
        # CPU time of children that have ended is not lost: it is in their last snapshot.
        self._seen: dict[str, dict[tuple[int, float], float]] = {role: {} for role in self._roots}

    @property
    def roles(self) -> dict[str, int]:
        """Role → number of processes."""
        return {role: len(roots) for role, roots in self._roots.items()}

    def snapshot(self) -> Snapshot:
        """Look at all of them."""
        cpu, memory = {}, {}
        for role, roots in self._roots.items():
            memory[role] = 0
            for process in _with_children(roots):
                try:
                    with process.oneshot():
                        times = process.cpu_times()
                        self._seen[role][process.pid, process.create_time()] = times.user + times.system
                        memory[role] += process.memory_info().rss
                except psutil.Error:
                    continue
            cpu[role] = sum(self._seen[role].values())
        return Snapshot(time.perf_counter(), cpu, memory)


def listener(url: str) -> list[int]:
    """Process that listens at an address; none if that is another machine, or another user's process."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    if (parts.hostname or "") not in _LOCAL or parts.port is None:
        return []
    return listeners([parts.port])


def listeners(ports: Iterable[int]) -> list[int]:
    """Processes that listen on ports of this machine."""
    wanted = set(ports)
    found = set()
    for process in psutil.process_iter():
        try:
            for connection in process.net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port in wanted:
                    found.add(process.pid)
        except (psutil.Error, OSError):
            continue
    # A socket is inherited by children, which count with their parent.
    return [pid for pid in sorted(found) if not found & {parent.pid for parent in psutil.Process(pid).parents()}]


def suspend(pids: Iterable[int]) -> None:
    """Stop processes and their descendants until `resume`: they use no CPU meanwhile."""
    for process in _with_children([p for pid in pids if (p := _process(pid))]):
        process.suspend()


def resume(pids: Iterable[int]) -> None:
    """Let them go on."""
    for process in _with_children([p for pid in pids if (p := _process(pid))]):
        process.resume()


def own() -> int:
    """This process."""
    return os.getpid()


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _with_children(roots: Iterable[psutil.Process]) -> list[psutil.Process]:
    found: dict[int, psutil.Process] = {}
    for root in roots:
        try:
            for process in [root, *root.children(recursive=True)]:
                found[process.pid] = process
        except psutil.Error:
            continue
    return list(found.values())
