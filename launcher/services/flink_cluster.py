"""The Flink cluster of a job: one that runs already, or one that is started on this machine."""

import hashlib
import math
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import class_archive, flink_gateway, flink_jvm, state
from cluster_serving.launcher.services.flink_home import PACKAGES, VERSION, FlinkHome, python_path
from cluster_serving.launcher.services.flink_rest import FlinkRest, Overview
from cluster_serving.launcher.services.process import (
    Process,
    is_listening,
    locked,
    remove_files,
    spawn,
    stop_recorded,
    wait_until,
)
from cluster_serving.launcher.services.supervisor import STARTED
from cluster_serving.settings.addresses import Address

SERVICE = "flink"
"""Name of the service in the state folder."""

JOBS = "jobs"
"""Folder, in that of the cluster, with the options of its jobs; see `launcher.targets.resubmit`."""

_DEFAULT_URL = "http://localhost:8081"
_JOBMANAGER = "jobmanager.json"
# Their names in Flink's scripts.
_SERVICES = {"jobmanager": "standalonesession", "taskmanager": "taskexecutor"}
# Heartbeats are most of what an idle cluster costs. Within a machine, one that is refused shows a death as soon as two
# in a row with an interval of 1 s do, as in `config.yaml`: after 1.5 s on average.
_HEARTBEATS: dict[str, object] = {"heartbeat.interval": "3 s", "heartbeat.rpc-failure-threshold": 1}

_REFUSED = "Error: Could not create the Java Virtual Machine."
"""What Java says after its reasons, in a line or two, why it does not take an option (env.java.opts)."""


class FlinkCluster:
    """The cluster whose REST endpoint is `flinkRestUrl`; it may still have to be started.

    Raises:
        LaunchError: From every method, if the cluster cannot be used or started.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.address = config.flink_address
        self.home = FlinkHome(folder(self.address))

    def ensure(self) -> None:
        """Use the cluster, or start one; `submitting` keeps other commands from using its folder."""
        # Not `self.check`: a target whose check looks at more has called it already.
        FlinkCluster.check(self)
        with locked(self.home.path):
            if self.is_ours:
                # Its supervisor may be starting it again, and its jobs; another cluster would end them.
                self._wait(lambda overview: overview.slots > 0 or not any(map(Process.read, self._taskmanagers())))
                if self._is_outdated():
                    self._replace()
                else:
                    self._introduce("started")
            elif is_listening(self.address):
                self._introduce("not started")
            else:
                self._start()
        if not self.is_ours:
            # `flink run` needs a home here, too, for a cluster elsewhere.
            self._prepare({})

    def _introduce(self, origin: str) -> None:
        found = self.overview()
        say(
            f"Using Flink at {self.address}, {origin} by these commands: version {found.version}, "
            f"{found.running} job{'s' * (found.running != 1)}, {found.free} of {found.slots} slots free"
        )

    def flink(self) -> FlinkRest:
        """Return a client for the jobs of the cluster."""
        return FlinkRest(self.config.flink_rest_url, remedy=self._remedy())

    def _remedy(self) -> str:
        if self.is_ours:
            return "its supervisor starts it again"
        # A command in another folder than that of the job has the defaults.
        is_default = self.config.flink_rest_url == _DEFAULT_URL and not Path(config_file.FILE_NAME).exists()
        return "start it, or correct it" + ("; this folder has no config.yaml, -c names another" if is_default else "")

    def submitting(self) -> AbstractContextManager[None]:
        """Let one command at a time submit jobs to the cluster: two could count on the same slots."""
        return submitting(self.address)

    def is_up(self) -> bool:
        """Return True if a usable Flink listens at `flinkRestUrl`; False if nothing does."""
        if not is_listening(self.address):
            return False
        self.overview()
        return True

    def check(self) -> None:
        """Check, before anything is started, that the cluster can be used, or started."""
        if self.is_ours:
            return
        if is_listening(self.address):
            self.overview()
        elif not self.address.is_local:
            raise LaunchError(
                f"Flink at {self.address} (flinkRestUrl) cannot be reached; start it, or set flinkRestUrl to another. "
                "cluster-serving-start starts one only on this machine"
            )

    def overview(self) -> Overview:
        """Return the overview of the cluster, after checking that a usable Flink listens at `flinkRestUrl`."""
        if not is_listening(self.address):
            raise LaunchError(
                f"Flink at {self.address} (flinkRestUrl) cannot be reached; start it, or set flinkRestUrl to another"
            )
        with FlinkRest(self.config.flink_rest_url) as rest:
            overview = rest.overview()
        if overview is None:
            raise LaunchError(
                f"port {self.address.port} on {self.address.host} is taken by something that does not answer as Flink; "
                "set flinkRestUrl to another port, or stop what uses this one"
            )
        if not overview.version.startswith(f"{VERSION}."):
            raise LaunchError(
                f"Flink at {self.address} (flinkRestUrl) is version {overview.version}; set flinkRestUrl to a Flink of "
                f"version {VERSION}, or to a free port of this machine for one of its own"
            )
        return overview

    @contextmanager
    def slots(self, needed: int) -> Iterator[None]:
        """Provide free task slots for a job; if the body fails, stop the TaskManagers that were started for them.

        Raises:
            LaunchError: If a cluster that was not started here has too few.
        """
        overview = self.overview()
        # A TaskManager that was killed counts until its heartbeat is missed; it is replaced at once.
        dead = sum(Process.read(record) is None for record in self._taskmanagers())
        missing = needed - overview.free
        if missing <= 0 and not (dead and self.is_ours):
            yield
            return
        if not self.is_ours:
            raise LaunchError(
                f"the job needs {needed} free task slots (modelParallelism), and Flink at {self.address} has "
                f"{overview.free} of {overview.slots}; add TaskManagers, stop another job or lower modelParallelism"
            )
        more = max(dead, math.ceil(missing / self.config.slots_per_task_manager))
        say(f"Starting {more} more TaskManager{'s' if more > 1 else ''} for {needed} slots")
        started: list[Path] = []
        try:
            with locked(self.home.path):
                for _ in range(more):
                    started.append(self._start_taskmanager())
            self._wait(lambda overview: overview.free >= needed)
            _confirm(started)
            yield
        except BaseException:
            self._return(started[dead:])
            raise

    def reclaim(self) -> None:
        """Stop the TaskManagers that were started here and that run nothing, but leave one."""
        with locked(self.home.path), FlinkRest(self.config.flink_rest_url) as rest:
            managers = self._taskmanagers() if self.is_ours else []
            idle = {name.partition(".")[0] for name in rest.idle()} if len(managers) > 1 else set()
            stopped = [record for record in managers if record.stem in idle][: len(managers) - 1]
            if stopped:
                say(f"Stopping {len(stopped)} idle TaskManager{'s' if len(stopped) > 1 else ''}")
                _stop_all(stopped)
            if self.is_ours:
                class_archive.make_soon(self.home)

    def _start(self) -> None:
        say(f"Starting Flink on port {self.address.port}")
        _stop_processes(self.home.path)
        self.home.put_logs_aside()
        gateway = flink_gateway.settings(self.home, self.address, self.config.flink_options)
        ports = {"rest.port": self.address.port, "jobmanager.rpc.port": _free_port()}
        self._prepare(_HEARTBEATS | ports | gateway)
        (self.home.path / "code").write_text(_code(), "utf8")
        class_archive.use(self.home)
        # The TaskManager starts at once: it tries until the JobManager answers.
        self._spawn("jobmanager")
        taskmanager = self._start_taskmanager()
        self._wait(lambda overview: overview.free > 0)
        _confirm([self.home.path / _JOBMANAGER, taskmanager])

    def _prepare(self, settings: dict[str, object]) -> None:
        local = {} if self.address.is_local else {"python.executable": "python"}
        self.home.prepare(local | settings | self.config.flink_options, self.config.log_format)

    def _return(self, taskmanagers: list[Path]) -> None:
        if taskmanagers:
            say(f"Stopping {len(taskmanagers)} TaskManager{'s' if len(taskmanagers) > 1 else ''} of this start")
            _stop_all(taskmanagers)

    def _start_taskmanager(self) -> Path:
        number = 1
        while Process.read(record := self.home.path / f"taskmanager-{number}.json"):
            number += 1
        # A flag of each TaskManager, as the jobs of a cluster may be configured differently.
        slots = self.config.slots_per_task_manager
        # By its id `reclaim` finds the record. Each start has another one: with that of a TaskManager that was killed,
        # the next heartbeat to the old one fails, and with it the new one.
        settings = {"numberOfTaskSlots": slots, "cpu.cores": slots, "resource-id": f"{record.stem}.{STARTED}"}
        self._spawn("taskmanager", number, *(f"-Dtaskmanager.{key}={value}" for key, value in settings.items()))
        return record

    def _taskmanagers(self) -> list[Path]:
        return list(self.home.path.glob("taskmanager-*.json"))

    def _spawn(self, role: str, number: int | None = None, *arguments: str) -> Process:
        name = f"{role}-{number}" if number else role
        home = self.home
        # Names that Flink's UI looks for. Output that is no log message is appended to the supervisor's log.
        log = home.logs / f"flink-{name}-{_SERVICES[role]}-0-{socket.gethostname()}.log"
        scratch = home.path / "tmp" / name
        command = flink_jvm.command(home, role, log, *arguments, scratch=scratch)
        record, output = home.path / f"{name}.json", log.with_suffix(".out")
        if role != "jobmanager":
            return spawn(command, record, output, home.work, home.environment(), scratch=scratch)
        after = ["cluster_serving.launcher.targets.resubmit", str(self.address.port)]
        # Told to end, a JobManager takes leave of the TaskManagers, which then look for another one only after 30 s.
        return spawn(command, record, output, home.work, home.environment(), after, abrupt=True, scratch=scratch)

    def _wait(self, condition: Callable[[Overview], bool]) -> None:
        def is_ready() -> bool:
            if not self.is_ours:
                raise LaunchError(f"Flink did not start: {self._last_error(before)} (logs: {self.home.logs})")
            overview = rest.overview()
            return overview is not None and condition(overview)

        # By inode, as logs are renamed.
        before = {file.stat().st_ino: file.stat().st_size for file in self.home.logs.iterdir()}
        with FlinkRest(self.config.flink_rest_url) as rest:
            if not wait_until(is_ready, self.config.start_timeout):
                raise LaunchError(
                    f"Flink has no free task slots after {self.config.start_timeout} s (startTimeout): "
                    f"{self._last_error(before)} (logs: {self.home.logs})"
                )

    def _last_error(self, before: Mapping[int, int]) -> str:
        last = "no error is in the logs"
        for log in sorted(self.home.logs.iterdir(), key=lambda path: path.stat().st_mtime):
            with log.open("rb") as file:
                file.seek(before.get(log.stat().st_ino, 0))
                text = file.read().decode("utf8", "replace")
            for line in text.splitlines():
                if "ERROR" in line or "Exception: " in line:
                    last = line.strip()
            reasons, refused, _ = text.partition(_REFUSED)
            if refused:
                last = "; ".join(line.removeprefix("Error: ") for line in reasons.splitlines()[-2:])
        return last

    @property
    def is_ours(self) -> bool:
        """As the function `is_ours`."""
        return is_ours(self.address)

    def _is_outdated(self) -> bool:
        """Return True if the cluster, which is ours, runs other code: Python modules stay loaded in a TaskManager."""
        record = self.home.path / "code"
        return record.exists() and record.read_text("utf8") != _code()

    def _replace(self) -> None:
        running = self.overview().running
        if running:
            say(
                f"Note: Flink on port {self.address.port} runs code of before an edit or of another installation, and "
                f"so will the new job, because {running} job(s) run there; cluster-serving-shutdown ends it"
            )
        else:
            say("Flink runs code of before an edit or of another installation; replacing it")
            self._start()


def stop(address: Address) -> bool:
    """Stop the cluster that was started here, and remove its files but the logs. Return True if there was one."""
    home = FlinkHome(folder(address))
    with locked(home.path):
        stopped = _stop_processes(home.path)
        remove_files(home.path, keep={home.logs.name, home.earlier_logs.name})
    return stopped


def is_ours(address: Address) -> bool:
    """Return True if the cluster was started here and the supervisor of its JobManager runs."""
    return Process.read(folder(address) / _JOBMANAGER) is not None


def submitting(address: Address) -> AbstractContextManager[None]:
    """Let one command of this machine at a time submit jobs to a cluster, or shut the cluster down.

    Two could count on the same slots.
    """
    return locked(state.folder("submission", address), say)


def folder(address: Address) -> Path:
    """Return the folder with the files of a cluster."""
    return state.folder(SERVICE, address)


def _stop_processes(home: Path) -> bool:
    # The JobManager comes last: TaskManagers sign off from it.
    stopped = _stop_all(home.glob("taskmanager-*.json")) + _stop_all([home / _JOBMANAGER])
    # Its jobs end with it: the next JobManager, after a reboot say, must not bring back jobs that nobody started again.
    shutil.rmtree(home / JOBS, ignore_errors=True)
    return stopped > 0


def _confirm(records: Iterable[Path]) -> None:
    """Tell the supervisors of records that their processes serve; a death from now on is no failed start."""
    for record in records:
        if process := Process.read(record):
            process.confirm()


def _stop_all(records: Iterable[Path]) -> int:
    """Stop the processes of records at the same time; return their number."""
    records = list(records)
    with ThreadPoolExecutor(len(records) or 1) as pool:
        return sum(pool.map(stop_recorded, records))


def _free_port() -> int:
    # A machine may have IPv6 alone; Flink listens on the same name.
    family, _, _, _, address = socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family) as probe:
        probe.bind(address)
        return int(probe.getsockname()[1])


def _code() -> str:
    """Return a fingerprint of the code that a TaskManager started now would run."""
    digest = hashlib.sha256("\n".join(python_path()).encode())
    for package in ("protocol", "connectors", "job"):
        for file in sorted((PACKAGES / "cluster_serving" / package).rglob("*.py")):
            status = file.stat()
            digest.update(f"{file}:{status.st_size}:{status.st_mtime_ns}".encode())
    return digest.hexdigest()
