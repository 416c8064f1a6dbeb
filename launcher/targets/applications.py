"""One Flink for each job, which a manager starts: an application of YARN, or a deployment of Kubernetes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_serving.job.options import JobOptions
from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import memory, state
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.flink_rest import ENDED, Flink, FlinkRest, Job
from cluster_serving.launcher.services.process import locked
from cluster_serving.launcher.targets.base import Target

_STARTING = "INITIALIZING"
"""State of a job whose Flink is being started, in Flink's words."""

# Native memory, which is outside of the JVM. Generous: a manager kills a process that has more than its share.
_WORKER = 512 << 20


@dataclass(frozen=True, slots=True)
class Application:
    """One Flink with one job, as its manager lists it.

    Attributes:
        id: The manager's name for it; the commands show it as the id of the job.
        name: Name of the job.
        state: The manager's word, such as `ACCEPTED`; after the end, one of Flink's words in `ENDED`.
        seconds: Time since its start.
        submission: Start of the job that made it, as in `JobOptions`.
        url: Flink's REST endpoint; empty if Flink is not up, or not any more.
        error: The manager's reason for its end.
        waits_for: The resources that it waits for, in the manager's words; empty if it has them.
    """

    id: str
    name: str
    state: str
    seconds: float
    submission: str
    url: str = ""
    error: str = ""
    waits_for: str = ""

    @property
    def has_ended(self) -> bool:
        """True if nothing of it runs any more."""
        return self.state in ENDED


class Applications(Flink, AbstractContextManager["Applications"]):
    """The serving jobs of a manager. Use it in a `with` statement.

    Flink goes on after the end of the job or of its main program (`SETTINGS`), so that the cause can be read.

    Raises:
        LaunchError: From every method, if the manager does not answer as expected. A Flink that does not answer is one
            that is being started, the first time or again.
    """

    def __init__(self) -> None:
        self._flinks: dict[str, FlinkRest] = {}

    def __exit__(self, *exc: object) -> None:
        for flink in self._flinks.values():
            flink.__exit__(*exc)

    @abstractmethod
    def applications(self, ended: bool) -> list[Application]:
        """Return the serving applications that the manager has not ended, or those that it has, the latest first."""

    @abstractmethod
    def application(self, id: str) -> Application:
        """Return an application; one that the manager does not have any more is `CANCELED`."""

    @abstractmethod
    def remove(self, application: Application) -> None:
        """End an application if it runs, wait until it has ended, and remove what it leaves behind."""

    def page(self, job_id: str) -> str:
        """Return the address of the Flink UI, or of the manager's page."""
        return self.application(job_id).url or self.where

    def jobs(self, name: str | None = None, ended: bool = False) -> list[Job]:
        """Return the jobs whose applications have not ended, or have, of one name or of all, the latest first.

        An application whose job has ended still has its resources: only `cancel` gives them back.
        """
        chosen = [found for found in self.applications(ended) if name in (None, found.name)]
        return [Job(found.id, found.name, self._state(found), found.seconds, found.submission) for found in chosen]

    def state(self, job_id: str) -> str:
        """Return the state of a job; the manager's word for the application before its Flink is up."""
        return self._state(self.application(job_id))

    def trace(self, job_id: str) -> str | None:
        """Return the trace of the job or of its main program, or the manager's reason for its end."""
        found = self.application(job_id)
        if found.has_ended:
            return found.error or None
        with suppress(LaunchError):
            flink, job = self._inside(found)
            trace = flink.trace(job.id) if flink and job else None
            return trace or (flink.main_trace() if flink else None)
        return None

    def waits_for(self, job_id: str) -> str:
        """Return what the application waits for."""
        return self.application(job_id).waits_for

    def restarts(self, job_id: str) -> int:
        """Return the number of times that Flink has started a job again; 0 while it is not known."""
        return self._count(job_id, FlinkRest.restarts)

    def parallelism(self, job_id: str) -> int:
        """Return the number of slots that a job uses; 0 while it is not known."""
        return self._count(job_id, FlinkRest.parallelism)

    def running(self, job_id: str) -> int | None:
        """Return the number of slots in which all of a job runs now; None while it is not known."""
        with suppress(LaunchError):
            flink, job = self._inside(self.application(job_id))
            return flink.running(job.id) if flink and job else None
        return None

    def cancel(self, job_id: str) -> None:
        """End the application of a job."""
        self.remove(self.application(job_id))

    def _count(self, job_id: str, count: Callable[[FlinkRest, str], int]) -> int:
        with suppress(LaunchError):
            flink, job = self._inside(self.application(job_id))
            return count(flink, job.id) if flink and job else 0
        return 0

    def _state(self, found: Application) -> str:
        if found.has_ended or not found.url:
            return found.state
        with suppress(LaunchError):
            flink, job = self._inside(found)
            if job:
                return job.state
            if flink and flink.main_trace():
                return "FAILED"
        return _STARTING

    def _inside(self, found: Application) -> tuple[FlinkRest | None, Job | None]:
        """Return the Flink of an application, and its job, as far as they are there."""
        if not found.url:
            return None, None
        flink = self._flinks.get(found.url)
        if flink is None:
            flink = self._flinks[found.url] = FlinkRest(found.url)
        jobs = flink.jobs(found.name) or flink.jobs(found.name, ended=True)
        return flink, jobs[0] if jobs else None


class Manager(Target):
    """A manager that starts a Flink for each job. A target of a kind has a class, `service` and the abstract methods.

    The folder of the client, `home`, is in the state folder: one for each Redis, which knows jobs by their names.
    """

    service = ""
    """Name of the client's folder."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.home = FlinkHome(state.folder(self.service, config.redis_address))

    @abstractmethod
    def flink(self) -> AbstractContextManager[Flink]:
        """Return a client for the jobs of the manager."""

    def submitting(self) -> AbstractContextManager[None]:
        """Let one command of this machine at a time use the folder of the client."""
        return locked(self.home.path, say)

    def is_up(self) -> bool:
        """Return True if the manager answers."""
        try:
            self.check()
        except LaunchError:
            return False
        return True

    def ensure(self) -> None:
        """Use the manager as it is."""

    def prepare(self, options: JobOptions, settings: Mapping[str, Any]) -> None:
        """Write the configuration of the client, which Flink hands on to the application.

        `options` name the model where it is on this machine. `settings` are the manager's own; `flink.options` of the
        user come last.
        """
        given = SETTINGS | sizes(self.config, options) | dict(settings) | self.config.flink_options
        self.home.prepare(given, self.config.log_format)


SETTINGS: dict[str, Any] = {
    # The manager knows the addresses.
    "jobmanager.rpc.address": None,
    "jobmanager.bind-host": None,
    "taskmanager.host": None,
    "taskmanager.bind-host": None,
    "rest.address": None,
    "rest.bind-address": None,
    # Paths of this machine.
    "python.executable": None,
    "python.client.executable": None,
    # Otherwise a failure takes its cause along. `Applications.remove` ends the application.
    "execution.shutdown-on-application-finish": False,
}
"""Settings of every Flink that a manager starts for one job."""


def sizes(config: Config, options: JobOptions) -> dict[str, Any]:
    """Return the settings for slots and memory of the TaskManagers of a job, whose model is on this machine or not."""
    slots = min(config.slots_per_task_manager, options.model_parallelism)
    model = 0 if is_url(options.model.path) else memory.size_of(Path(options.model.path))
    engines = slots if options.execution_mode == "process" else 1
    native = engines * memory.ENGINE + slots * memory.loaded(model)
    if options.execution_mode == "process":
        native += slots * _WORKER
    return {
        "taskmanager.numberOfTaskSlots": slots,
        "taskmanager.memory.task.off-heap.size": f"{math.ceil(native / (1 << 20))}m",
    }
