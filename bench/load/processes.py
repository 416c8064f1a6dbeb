"""CPU time and memory of the processes on this machine that take part; they are found by the ports they listen on."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import httpx
import psutil

_LOCAL = {"localhost", "127.0.0.1", "::1", ""}
_FLINK_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the processes at one moment.

    Attributes:
        time: Moment, by `time.perf_counter`.
        cpu: Role → CPU seconds used so far, user and system, children included.
        memory: Role → resident bytes.
    """

    time: float
    cpu: Mapping[str, float]
    memory: Mapping[str, int]


class Processes:
    """Processes by role; a process and its descendants share one."""

    def __init__(self, roles: Mapping[str, Iterable[int]]) -> None:
        self._roots = {role: _existing(pids) for role, pids in roles.items()}
        # The CPU time of children that have ended is kept from their last snapshot.
        self._seen: dict[str, dict[tuple[int, float], float]] = {role: {} for role in self._roots}

    def snapshot(self) -> Snapshot:
        """Return the CPU time and memory of all roles."""
        cpu, memory = {}, {}
        for role, roots in self._roots.items():
            memory[role] = 0
            for process in _with_children(roots):
                with suppress(psutil.Error), process.oneshot():
                    times = process.cpu_times()
                    self._seen[role][process.pid, process.create_time()] = times.user + times.system
                    memory[role] += process.memory_info().rss
            cpu[role] = sum(self._seen[role].values())
        return Snapshot(time.perf_counter(), cpu, memory)


def roles(redis_url: str, flink_url: str, http_url: str) -> dict[str, list[int]]:
    """Return the processes that listen at these addresses, by role; an empty address has no role.

    A role has no process if that runs on another machine, or belongs to another user.

    Raises:
        httpx.HTTPError: If Flink does not answer.
    """
    listening = {"Redis": _local_port(redis_url)}
    if flink_url:
        listening |= {"JobManager": _local_port(flink_url), "TaskManager": _taskmanager_ports(flink_url)}
    if http_url:
        listening["front end"] = _local_port(http_url)
    return {role: _listeners(ports) for role, ports in listening.items()}


def _local_port(url: str) -> list[int]:
    """Return the port of an address on this machine, else none."""
    parts = urlsplit(url if "//" in url else f"//{url}")
    return [parts.port] if (parts.hostname or "") in _LOCAL and parts.port is not None else []


def _taskmanager_ports(url: str) -> list[int]:
    """Return the ports that the TaskManagers of a Flink cluster listen on; `url` is that of Flink's REST API."""
    address = url if "://" in url else f"http://{url}"
    response = httpx.get(f"{address}/taskmanagers", timeout=_FLINK_TIMEOUT_S, trust_env=False).raise_for_status()
    # Such as pekko.tcp://flink@localhost:41871/user/rpc/taskmanager_0
    return [urlsplit(manager["path"]).port or 0 for manager in response.json()["taskmanagers"]]


def _listeners(ports: Sequence[int]) -> list[int]:
    pids = set()
    for process in psutil.process_iter() if ports else ():
        with suppress(psutil.Error, OSError):
            for connection in process.net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port in ports:
                    pids.add(process.pid)
    # Children inherit the socket; they count with their parent.
    return [pid for pid in sorted(pids) if not pids & {parent.pid for parent in psutil.Process(pid).parents()}]


def tree(pids: Iterable[int]) -> list[psutil.Process]:
    """Return the processes that exist, and their descendants."""
    return _with_children(_existing(pids))


def _existing(pids: Iterable[int]) -> list[psutil.Process]:
    processes = []
    for pid in pids:
        with suppress(psutil.Error):
            processes.append(psutil.Process(pid))
    return processes


def _with_children(roots: Iterable[psutil.Process]) -> list[psutil.Process]:
    processes: dict[int, psutil.Process] = {}
    for root in roots:
        with suppress(psutil.Error):
            processes |= {process.pid: process for process in [root, *root.children(recursive=True)]}
    return list(processes.values())
