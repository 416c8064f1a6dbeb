"""Cluster Serving as a user runs it: the commands, in a temporary folder, on free ports."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil

from cluster_serving.bench.load.payload import Record
from cluster_serving.bench.load.processes import roles, tree
from cluster_serving.bench.load.target import Endpoint

_BIN = Path(sys.executable).parent
_COMMAND_TIMEOUT = 300
_LISTEN_TIMEOUT = 120
_REPORT_S = 1.0
_PROGRAM_TIMEOUT = 3600
_UPDATE = "cluster-serving-restart"

HOME = "CLUSTER_SERVING_HOME"
"""Environment variable with the folder of what the commands have started; all of these processes have it."""

AS_INSTALLED = {"modelParallelism": None, "threadPerModel": None, "maxBatchSize": None}
"""Settings of a job whose layout is measured, as without these keys."""


class Unavailable(Exception):
    """A server cannot be started on this machine; the text says why."""


def free_port() -> int:
    """Return a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Stack:
    """Redis, Flink, and jobs; use it in a `with` statement.

    Args:
        programs: Folder with the commands of the installation to use; by default of this one.
    """

    def __init__(self, programs: Path = _BIN) -> None:
        self._programs = programs
        # A short path: Flink's scripts fail at spaces, and Unix sockets at long paths.
        self.folder = Path(tempfile.mkdtemp(prefix="cluster-serving-bench-"))
        self.redis_port, self.flink_port = free_port(), free_port()
        self.redis_url = f"redis://127.0.0.1:{self.redis_port}/0"
        self.flink_url = f"http://127.0.0.1:{self.flink_port}"
        self.home = self.folder / "home"
        self._environment = os.environ | {HOME: str(self.home)}
        self._front_ends, self._front_end_ports = ExitStack(), dict[tuple[str, int], dict[str, int]]()
        self._job = ""

    def __enter__(self) -> Stack:
        # The services outlive this process, so they must be stopped on SIGTERM too.
        signal.signal(signal.SIGTERM, _exit)
        return self

    def __exit__(self, *_: object) -> None:
        self._front_ends.close()
        for config in list(self.folder.glob("*/config.yaml"))[:1]:
            with suppress(Unavailable):
                self.command("cluster-serving-shutdown", config.parent.name, "--yes")
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, job: str, model: Path, **settings: Any) -> float:
        """Stop the job before, if there is one, and start another. Return the seconds that the start took.

        Raises:
            Unavailable: If the job does not start; the text is the command's message.
        """
        if self._job:
            self.command("cluster-serving-stop", self._job, self._job)
        self._job = ""
        started = time.perf_counter()
        self.add(job, model, **settings)
        self._job = job
        return time.perf_counter() - started

    def add(self, job: str, model: Path, *arguments: str, **settings: Any) -> None:
        """Start a job beside those that run; the arguments are those of the command.

        Raises:
            Unavailable: If the job does not start; the text is the command's message.
        """
        self._configure(job, model, settings)
        self.command("cluster-serving-start", job, *arguments)

    def update(self, job: str, model: Path, **settings: Any) -> None:
        """Give the running job another model, by the command that users run.

        Raises:
            Unavailable: If the job does not start; the text is the command's message.
        """
        self._configure(job, model, settings)
        self.command(_UPDATE, job)

    def command(self, name: str, job: str, *arguments: str) -> None:
        """Run a command in the folder of a job.

        Raises:
            Unavailable: If the command fails; the text is its message.
        """
        run([self._programs / name, *arguments], cwd=self.folder / job, env=self._environment, timeout=_COMMAND_TIMEOUT)

    def endpoint(self, job: str, records: Sequence[Record]) -> Endpoint:
        """Return the address of a job for the native client."""
        return Endpoint("redis", self.redis_url, job, records, timeout=120)

    def front_end(self, job: str, workers: int = 1, scheme: str = "http") -> str:
        """Start the front end of a job, with a number of processes, unless it runs. Return its address.

        The scheme is `http` or `grpc`.

        Raises:
            Unavailable: If it does not start.
        """
        if (job, workers) not in self._front_end_ports:
            ports = {"http": free_port(), "grpc": free_port()}
            command = [str(self._programs / "cluster-serving-http"), "-c", str(self.folder / job / "config.yaml")]
            command += ["--interface", "127.0.0.1", "--redisUrl", self.redis_url, "--workers", str(workers)]
            command += ["--port", str(ports["http"]), "--grpcPort", str(ports["grpc"])]
            log = self.folder / "front-end.log"
            self._front_ends.enter_context(program(command, ports["http"], log, env=self._environment))
            self._front_end_ports[job, workers] = ports
        return f"{scheme}://127.0.0.1:{self._front_end_ports[job, workers][scheme]}"

    @contextmanager
    def scoring(self, source: Path) -> Iterator[None]:
        """Score files through the running job for the time of a `with` block, from their beginning."""
        target, log = self.folder / "scored", self.folder / "score.log"
        shutil.rmtree(target, ignore_errors=True)
        command = [
            self._programs / "cluster-serving-cli",
            "score",
            "--job",
            self._job,
            "--input",
            source,
            "--output",
            target,
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(
                list(map(str, command)),
                cwd=self.folder / self._job,
                env=self._environment,
                stdout=output,
                stderr=output,
            )
        try:
            while not target.exists():
                if process.poll() is not None:
                    raise Unavailable(f"score ended with {process.returncode}: {_tail(log)}")
                time.sleep(0.1)
            yield
        finally:
            _stop_tree(process)

    def roles(self, http_url: str = "") -> dict[str, list[int]]:
        """Return the processes of the stack by role."""
        return roles(self.redis_url, self.flink_url, http_url)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspend the stack while a peer is measured; afterwards, wait until its front ends answer again.

        Flink starts the job again if that took longer than its heartbeat timeout.
        """
        processes = tree(pid for pids in self.roles().values() for pid in pids)
        try:
            for process in processes:
                process.suspend()
            yield
        finally:
            for process in processes:
                with suppress(psutil.Error):
                    process.resume()
            # Until the slots have told that they are alive, the front end answers 503.
            time.sleep(_REPORT_S)
            for ports in self._front_end_ports.values():
                _wait_until_ready(ports["http"])

    def cpu(self) -> float:
        """Return the CPU seconds so far of all processes that the commands have left running."""
        return sum(self._figures(lambda process: sum(process.cpu_times()[:4])).values())

    def memory(self) -> float:
        """Return the bytes of all processes, where a page that n of them share counts as a nth in each."""
        return sum(self._figures(lambda process: process.memory_full_info().pss).values())

    def share(self, seconds: float) -> float:
        """Return the cores that the processes use for some seconds, without those that end meanwhile."""
        before, started = self._figures(lambda process: sum(process.cpu_times()[:2])), time.perf_counter()
        time.sleep(seconds)
        after, passed = self._figures(lambda process: sum(process.cpu_times()[:2])), time.perf_counter() - started
        return sum(after[pid] - before[pid] for pid in after.keys() & before.keys()) / passed

    def _figures(self, figure: Callable[[psutil.Process], float]) -> dict[int, float]:
        """Return a figure of each process that the commands have started, which inherit the folder of their state."""
        figures = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(HOME) == str(self.home):
                    figures[process.pid] = figure(process)
        return figures

    def _configure(self, job: str, model: Path, settings: dict[str, Any]) -> None:
        folder = self.folder / job
        folder.mkdir(exist_ok=True)
        addresses = {"redisUrl": f"127.0.0.1:{self.redis_port}", "flinkRestUrl": f"127.0.0.1:{self.flink_port}"}
        # Rows choose their layout; nothing is measured, unless they say so (`AS_INSTALLED`).
        layout = {"modelParallelism": 1, "threadPerModel": 1, "maxBatchSize": 32}
        config = {"jobName": job, "modelPath": str(model.absolute())} | layout | settings | addresses
        # JSON is YAML.
        (folder / "config.yaml").write_text(json.dumps(config))


def run(command: Sequence[str | Path], timeout: float = _PROGRAM_TIMEOUT, **options: Any) -> str:
    """Run a program and return its output; `options` are those of `subprocess.run`.

    Raises:
        Unavailable: If it fails or takes too long; the text has the end of its messages.
    """
    name = " ".join(map(str, [Path(command[0]).name, *command[1:3]]))
    try:
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, check=False, timeout=timeout, **options
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{name} was not done after {error.timeout:.0f} s") from None
    if done.returncode:
        raise Unavailable(f"{name} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    return str(done.stdout)


def commands_cpu() -> float:
    """Return the CPU seconds of all commands that this process has run so far, and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _exit(*_: object) -> None:
    raise SystemExit(143)


@contextmanager
def program(command: Sequence[str], port: int, log: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server for the time of a `with` block, which begins when the server listens on its port.

    `options` are those of `subprocess.Popen`.

    Raises:
        Unavailable: If the server ends or takes too long; the text has the end of its log.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, **options)
    try:
        _wait_for_port(port, process, log)
        yield process
    finally:
        _stop_tree(process)


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _LISTEN_TIMEOUT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Unavailable(f"the process ended with {process.returncode}: {_tail(log)}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise Unavailable(f"nothing listened on port {port} after {_LISTEN_TIMEOUT} s: {_tail(log)}")


def _wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + _LISTEN_TIMEOUT
    while time.monotonic() < deadline:
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=10):
            return
        time.sleep(0.1)
    raise Unavailable(f"the front end on port {port} was not ready after {_LISTEN_TIMEOUT} s")


def _stop_tree(process: subprocess.Popen[bytes]) -> None:
    """Stop a process that this one started, and all its descendants."""
    members = tree([process.pid])
    process.terminate()
    _, alive = psutil.wait_procs(members, 10)
    for member in alive:
        with suppress(psutil.Error):
            member.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)


def _tail(log: Path) -> str:
    return " | ".join(line.strip() for line in log.read_text("utf8", "replace").splitlines()[-4:])[-500:]
