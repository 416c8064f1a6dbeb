"""What can go wrong, as functions of the system under test."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from tests.support.fixtures.supervised import children, kept, supervisors


def kept_processes(cluster, service):
    """Numbers of the processes that supervisors keep for a service."""
    return [process for group in groups(cluster, service) if (process := kept(group))]


def groups(cluster, service):
    """Process groups of the supervisors of a service."""
    records = [*cluster.state.glob(f"*/{service}*.json"), *cluster.state.glob(f"{service}-*/process.json")]
    return [json.loads(record.read_text())["pid"] for record in records]


def descendants(pid):
    """Numbers of the processes below one."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def kill(service):
    def fault(system, random):
        victims = kept_processes(system.cluster, service)
        # None only if another fault has just killed it.
        for pid in victims:
            os.kill(pid, signal.SIGKILL)

    return fault


def kill_with_supervisor(service):
    """Kill the processes of a service, and the supervisor of each that is active or the one that stands by."""

    def fault(system, random):
        for group in groups(system.cluster, service):
            for pid in filter(None, [random.choice(supervisors(group)), kept(group)]):
                os.kill(pid, signal.SIGKILL)

    return fault


def python_workers(cluster):
    """Numbers of the processes in which the models of process mode run: descendants of the TaskManagers."""
    return [
        pid
        for manager in kept_processes(cluster, "taskmanager")
        for pid in descendants(manager)
        if b"beam_boot" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def kill_python_worker(system, random):
    """None only if another fault has just ended it, or the process above it."""
    workers = python_workers(system.cluster)
    if workers:
        os.kill(random.choice(workers), signal.SIGKILL)


def freeze(service, seconds=20):
    def fault(system, random):
        frozen = kept_processes(system.cluster, service)
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)

    return fault


def stall_network(system, random):
    system.proxy.stall()
    time.sleep(random.uniform(3, 15))
    system.proxy.resume()


def cut_network(system, random):
    for _ in range(10):
        system.proxy.cut()
        time.sleep(random.uniform(0, 0.5))


def slow_network(system, random):
    system.proxy.delay = 0.05
    time.sleep(5)
    system.proxy.delay = 0.0


def fill_disk(system, random):
    """Fill the disk that holds the append-only file of Redis, for a while."""
    filler = system.disk / "filler"
    # Unbuffered: what is left in a buffer would be written, and fail again, when the file is closed.
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    time.sleep(random.uniform(3, 8))
    filler.unlink(missing_ok=True)


def rescale(system, random):
    system.restart("chaos", random.choice([1, 2, 3]))


def restart_job(system, random):
    system.restart("chaos", 2)


FAULTS = {
    "kill TaskManager": kill("taskmanager"),
    "kill JobManager": kill("jobmanager"),
    "kill Redis": kill("redis"),
    "kill Python worker": kill_python_worker,
    "kill TaskManager and a supervisor": kill_with_supervisor("taskmanager"),
    "kill JobManager and a supervisor": kill_with_supervisor("jobmanager"),
    "freeze TaskManager 20 s": freeze("taskmanager"),
    "freeze Redis 8 s": freeze("redis", 8),
    "network stalls": stall_network,
    "network is cut": cut_network,
    "network is slow": slow_network,
    "disk is full": fill_disk,
    "rescale": rescale,
    "restart job": restart_job,
}
