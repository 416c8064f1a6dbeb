"""Cluster Serving as a user runs it: the commands, in a temporary folder, on free ports."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from cluster_serving.bench.load.payload import Record
from cluster_serving.bench.load.processes import listener, listeners, resume, suspend, taskmanager_ports
from cluster_serving.bench.load.target import Endpoint

_BIN = Path(sys.executable).parent
_COMMAND_TIMEOUT = 300


class Unavailable(Exception):
    """A server cannot be started on this machine; the text says why."""


def free_port() -> int:
    """Return a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Stack:
    """Redis, Flink and jobs; use it in a `with` statement."""

    def __init__(self) -> None:
        # A short path: Flink's scripts fail at spaces, and Unix sockets at long paths.
        self.folder = Path(tempfile.mkdtemp(prefix="cluster-serving-bench-"))
        self.redis_port, self.flink_port = free_port(), free_port()
        self.redis_url = f"redis://127.0.0.1:{self.redis_port}/0"
        self.flink_url = f"http://127.0.0.1:{self.flink_port}"
        self._environment = os.environ | {"CLUSTER_SERVING_HOME": str(self.folder / "home")}
        self._front_ends: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Stack:
        # The services outlive this process, so they must be stopped on SIGTERM too.
        signal.signal(signal.SIGTERM, _exit)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, job: str, model: Path, **settings: Any) -> float:
        """Start a job, and return the seconds that the command took.

        Raises:
            Unavailable: If the job does not start; the text is the command's message.
        """
        self._config(job, modelPath=str(model.absolute()), **settings)
        started = time.perf_counter()
        self._command("cluster-serving-start", job)
        return time.perf_counter() - started

    def stop(self, job: str) -> None:
        """Stop a job."""
        self._command("cluster-serving-stop", job, job)

    def shutdown(self) -> None:
        """Stop the front ends, the jobs, Flink and Redis."""
        for process in self._front_ends:
            stop_tree(process)
        self._front_ends.clear()
        configs = list(self.folder.glob("*/config.yaml"))
        if configs:
            with suppress(Unavailable):
                self._command("cluster-serving-shutdown", configs[0].parent.name)

    @contextmanager
    def running(self, job: str, model: Path, **settings: Any) -> Iterator[None]:
        """Run a job for the time of a `with` block."""
        self.start(job, model, **settings)
        try:
            yield
        finally:
            self.stop(job)

    def endpoint(self, job: str, records: Sequence[Record], timeout: float = 60.0) -> Endpoint:
        """Return the address of a job for the native client."""
        return Endpoint("redis", self.redis_url, job, records, timeout)

    def front_end(self, job: str) -> str:
        """Start the HTTP front end of a job, and return its address.

        Raises:
            Unavailable: If it does not start.
        """
        port = free_port()
        options = ("--interface", "127.0.0.1", "--port", str(port), "--grpcPort", "0", "--redisUrl", self.redis_url)
        log = (self.folder / "front-end.log").open("wb")
        process = subprocess.Popen(
            [str(_BIN / "cluster-serving-http"), "-c", str(self.folder / job / "config.yaml"), *options],
            env=self._environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self._front_ends.append(process)
        wait_for_port(port, process, self.folder / "front-end.log")
        return f"http://127.0.0.1:{port}"

    def roles(self, http_url: str = "") -> dict[str, list[int]]:
        """Return the processes of the stack by role."""
        roles = {"Redis": listener(self.redis_url), "JobManager": listener(self.flink_url)}
        roles["TaskManager"] = listeners(taskmanager_ports(self.flink_url))
        if http_url:
            roles["front end"] = listener(http_url)
        return roles

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspend the stack while a peer is measured, for less than Flink's heartbeat timeout of 30 s."""
        pids = [pid for pids in self.roles().values() for pid in pids]
        suspend(pids)
        try:
            yield
        finally:
            resume(pids)

    def _config(self, name: str, **settings: Any) -> None:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        addresses = {"redisUrl": f"127.0.0.1:{self.redis_port}", "flinkRestUrl": f"127.0.0.1:{self.flink_port}"}
        # JSON is YAML.
        (folder / "config.yaml").write_text(json.dumps({"jobName": name} | settings | addresses))

    def _command(self, name: str, job: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(_BIN / name), *arguments],
            cwd=self.folder / job,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT,
            check=False,
        )
        if done.returncode:
            raise Unavailable(f"{name} of job {job}: {(done.stderr or done.stdout).strip()[-500:]}")


def _exit(*_: object) -> None:
    raise SystemExit(143)


def wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path, timeout: float = 120) -> None:
    """Wait until a port is listened on.

    Raises:
        Unavailable: If the process ends or takes too long; the text has the end of its log.
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Unavailable(f"the process ended with {process.returncode}: {_tail(log)}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise Unavailable(f"nothing listened on port {port} after {timeout:.0f} s: {_tail(log)}")


def stop_tree(process: subprocess.Popen[bytes], grace: float = 10) -> None:
    """Stop a process that this one started, and all its descendants."""
    try:
        root = psutil.Process(process.pid)
        members = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        members = []
    process.terminate()
    _, alive = psutil.wait_procs(members, grace)
    for member in alive:
        with suppress(psutil.Error):
            member.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)


def _tail(log: Path) -> str:
    return " | ".join(line.strip() for line in log.read_text("utf8", "replace").splitlines()[-4:])[-500:]
