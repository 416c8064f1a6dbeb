"""A client of the part of Flink's REST API that the launcher uses."""

from __future__ import annotations

import re
import socket
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from cluster_serving.job.options import MARK, NAME
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services.flink_cause import cause
from cluster_serving.launcher.services.process import wait_until
from cluster_serving.launcher.services.rest import Answer, Unanswered, request
from cluster_serving.settings.addresses import Address

ENDED = {"FINISHED", "CANCELED", "FAILED", "SUSPENDED"}
"""States of jobs that use no slots any more."""

_CANCEL_TIMEOUT = 60.0
# A job has no parameters while it initializes, and Flink caches its answers for web.refresh-interval, 3 s by default.
_NEW_MS = 5000
_NO_SLOTS = "NoResourceAvailableException"
# Its standard output and error; Flink's own messages are no INFO.
_PRINTED = re.compile(r" INFO +\S*client\.python\.PythonDriver +- (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Overview:
    """State of a cluster: its version of Flink, and its numbers of task slots, of free ones, and of running jobs."""

    version: str
    slots: int
    free: int
    running: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the cluster: one generation of a job of ours.

    Attributes:
        id: Flink's id.
        name: `jobName`.
        state: State in Flink's words.
        seconds: Time since its start.
        submission: Identifier of the submission that made it.
    """

    id: str
    name: str
    state: str
    seconds: float
    submission: str = ""


class Flink(ABC):
    """The serving jobs of a target; `FlinkRest` is that of one cluster.

    Raises:
        LaunchError: From every method, if the target does not answer as expected.
    """

    @property
    @abstractmethod
    def where(self) -> str:
        """The place of the jobs, for messages: a URL, or the name of a cluster."""

    @property
    def place(self) -> str:
        """The place of the jobs by a name that other machines do not have for another Flink."""
        return self.where

    @abstractmethod
    def jobs(self, name: str | None = None, ended: bool = False) -> list[Job]:
        """Return the jobs that have not ended, or those that have, of one name or of all, the latest first."""

    def has_new(self, name: str) -> bool:
        """Return True if a job of that name is so new that `jobs` may leave it out; managers list a job at once."""
        return False

    @abstractmethod
    def state(self, job_id: str) -> str:
        """Return the state of a job in Flink's words; `FAILED` also if its main program failed."""

    def root_cause(self, job_id: str) -> str | None:
        """Return the cause of the latest failure of a job in one line; None if there was none."""
        trace = self.trace(job_id)
        return None if trace is None else cause(trace)

    def failure(self, job_id: str) -> tuple[float | None, str] | None:
        """Return time, in seconds since the epoch if it is known, and cause of the latest failure; None without one."""
        told = self.root_cause(job_id)
        return None if told is None else (None, told)

    @abstractmethod
    def trace(self, job_id: str) -> str | None:
        """Return all that is known of the latest failure of a job; None if there was none."""

    def waits_for(self, job_id: str) -> str:
        """Return in words what a job needs of its target and does not get; empty if nothing."""
        return ""

    @abstractmethod
    def restarts(self, job_id: str) -> int:
        """Return the number of times that Flink has started a job again."""

    @abstractmethod
    def parallelism(self, job_id: str) -> int:
        """Return the number of slots that a job uses; 0 if it is not known yet."""

    def running(self, job_id: str) -> int | None:
        """Return the number of slots in which all of a job runs now; None if it is not known."""
        return None

    @abstractmethod
    def page(self, job_id: str) -> str:
        """Return the address of a job in the Flink UI."""

    @abstractmethod
    def cancel(self, job_id: str) -> None:
        """Stop a job, wait until it has ended, and remove what it leaves behind."""


class FlinkRest(Flink, AbstractContextManager["FlinkRest"]):
    """A client of the cluster at `http://host:port`; use it in a `with` statement.

    Raises:
        LaunchError: From every method but `overview`, if Flink does not answer as expected.
    """

    def __init__(self, url: str, timeout: float = 10.0, remedy: str = "start it, or correct it") -> None:
        self.url = url
        self._timeout = timeout
        self._remedy = remedy

    def __exit__(self, *exc: object) -> None:
        """Leave nothing open: each request has its own connection."""

    @property
    def where(self) -> str:
        """The URL, for messages."""
        return self.url

    @property
    def place(self) -> str:
        """The URL, with the name of this machine in place of a loopback name."""
        return place_of(self.url)

    def overview(self) -> Overview | None:
        """Return the state of the cluster; None if nothing answers as Flink."""
        try:
            raw = self._get("/overview")
            return Overview(raw["flink-version"], raw["slots-total"], raw["slots-available"], raw["jobs-running"])
        except (LaunchError, KeyError, TypeError):
            return None

    def has_pyflink(self) -> bool:
        """Return True if the machines of the cluster have the classes of PyFlink, in the class path of Flink."""
        return "flink-python" in str(self._get("/jobmanager/environment")["classpath"])

    def is_set(self, option: str) -> bool:
        """Return True if the configuration of the JobManager has an option."""
        return any(each["key"] == option for each in self._get("/jobmanager/config"))

    def task_managers(self) -> dict[str, str]:
        """Return host and port of each TaskManager by its resource id."""
        # Such as pekko.tcp://flink@172.18.0.4:41871/user/rpc/taskmanager_0
        managers = self._get("/taskmanagers")["taskmanagers"]
        return {each["id"]: each["path"].partition("@")[2].partition("/")[0] for each in managers}

    def log_files(self, manager: str) -> dict[str, int]:
        """Return the bytes of the files in which a TaskManager and its Python write, by name."""
        files = self._get(f"/taskmanagers/{manager}/logs")["logs"]
        return {each["name"]: each["size"] for each in sorted(files, key=lambda file: file["name"]) if each["size"]}

    def log(self, manager: str, name: str) -> str:
        """Return the text of such a file."""
        return self._request("GET", f"/taskmanagers/{manager}/logs/{quote(name)}").text

    def idle(self) -> set[str]:
        """Return the resource ids of the TaskManagers all of whose slots are free."""
        managers = self._get("/taskmanagers")["taskmanagers"]
        return {manager["id"] for manager in managers if manager["freeSlots"] == manager["slotsNumber"]}

    def jobs(self, name: str | None = None, ended: bool = False) -> list[Job]:
        """Return the serving jobs that have not ended, or those that have, of one name or of all, the latest first.

        Other jobs of the cluster are left out.
        """
        raw = sorted(self._listed(), key=lambda job: -job["start-time"])
        jobs = []
        for job in raw:
            if (job["state"] in ENDED) == ended and job["name"].startswith(name or ""):
                given = self._parameters(job["jid"])
                if MARK in given and name in (None, given.get(NAME)):
                    seconds = job["duration"] / 1000
                    jobs.append(Job(job["jid"], given[NAME], job["state"], seconds, given[MARK]))
        return jobs

    def named(self, name: str) -> str | None:
        """Return the id of a job of any kind that has not ended, by its name in Flink; None if there is none."""
        return next((job["jid"] for job in self._listed() if job["name"] == name and job["state"] not in ENDED), None)

    def has_new(self, name: str) -> bool:
        """Return True if a job of that name is so new that `jobs` may leave it out although it is ours."""
        listed = (job for job in self._listed() if job["state"] not in ENDED)
        # Jobs of earlier versions have the generation in their name.
        running = [job for job in listed if job["name"] == name or job["name"].startswith(f"{name} (generation ")]
        return any(job["state"] == "INITIALIZING" or job["duration"] < _NEW_MS for job in running)

    def state(self, job_id: str) -> str:
        """Return the state of a job."""
        # Flink caches what it tells of a job at its other addresses.
        return str(self._get(f"/jobs/{job_id}/status")["status"])

    def failure(self, job_id: str) -> tuple[float | None, str] | None:
        """Return time and cause of the latest exception of a job; None if there was none."""
        latest = self._latest(job_id)
        return (latest["timestamp"] / 1000, cause(str(latest.get("stacktrace", "")))) if latest else None

    def trace(self, job_id: str) -> str | None:
        """Return the stack trace of the latest exception of a job; None if there was none."""
        latest = self._latest(job_id)
        return str(latest.get("stacktrace", "")) if latest else None

    def _latest(self, job_id: str) -> dict[str, Any] | None:
        history = self._get(f"/jobs/{job_id}/exceptions").get("exceptionHistory", {}).get("entries", [])
        # After the death of a TaskManager, a job fails again and again for lack of slots until there is another one.
        causes = (each for each in history if _NO_SLOTS not in str(each.get("stacktrace", "")))
        return next(causes, history[0] if history else None)

    def main_trace(self) -> str | None:
        """Return what the main program of a Flink that runs one has printed; None if the program has not failed."""
        for application in self._get("/applications/overview")["applications"]:
            found = self._get(f"/applications/{application['id']}/exceptions")["exceptionHistory"]["entries"]
            if found:
                return self._printed() or str(found[0].get("stacktrace", ""))
        return None

    def _printed(self) -> str:
        """Return the output of the main program: Flink itself tells only the exit code."""
        with suppress(LaunchError):
            lines = _PRINTED.findall(self._request("GET", "/jobmanager/log").text)
            return "\n".join(line for line in lines if not line.startswith("---"))
        return ""

    def restarts(self, job_id: str) -> int:
        """Return the number of times that Flink has started a job again."""
        metrics = self._get(f"/jobs/{job_id}/metrics", get="numRestarts")
        return int(metrics[0]["value"]) if metrics else 0

    def parallelism(self, job_id: str) -> int:
        """Return the number of slots that a job uses."""
        return max((vertex["parallelism"] for vertex in self._get(f"/jobs/{job_id}")["vertices"]), default=0)

    def running(self, job_id: str) -> int | None:
        """Return the number of slots in which all of a job runs now; Flink calls a job RUNNING also without one."""
        counts = [vertex["tasks"]["RUNNING"] for vertex in self._get(f"/jobs/{job_id}")["vertices"]]
        return min(counts, default=0)

    def page(self, job_id: str) -> str:
        """Return the address of a job in the Flink UI."""
        return f"{self.url}/#/job/running/{job_id}"

    def cancel(self, job_id: str) -> None:
        """Stop a job, and wait until it has ended."""
        if self.state(job_id) not in ENDED:
            self._request("PATCH", f"/jobs/{job_id}", mode="cancel")
        if not wait_until(lambda: self.state(job_id) in ENDED, _CANCEL_TIMEOUT):
            raise LaunchError(f"job {job_id} has not stopped after {_CANCEL_TIMEOUT:.0f} s; see {self.page(job_id)}")

    def shut_down(self) -> None:
        """End the cluster, with all of its processes."""
        self._request("DELETE", "/cluster")

    def _listed(self) -> list[dict[str, Any]]:
        return list(self._get("/jobs/overview")["jobs"])

    def _parameters(self, job_id: str) -> dict[str, str]:
        return dict(self._get(f"/jobs/{job_id}/config")["execution-config"]["user-config"])

    def _get(self, path: str, **query: str) -> Any:
        try:
            return self._request("GET", path, **query).json()
        except ValueError:
            raise LaunchError(f"Flink at {self.url} does not answer with JSON to GET {path}") from None

    def _request(self, method: str, path: str, **query: str) -> Answer:
        try:
            answer = request(method, self.url + path, query, timeout=self._timeout)
        except Unanswered as error:
            raise LaunchError(f"Flink at {self.url} (flinkRestUrl) does not answer: {error}; {self._remedy}") from None
        if not answer.is_success:
            raise LaunchError(f"Flink at {self.url} answers {answer.status} to {method} {path}")
        return answer


def place_of(url: str) -> str:
    """Return the URL of a Flink, with the name of this machine in place of a loopback name."""
    return _on(url, socket.gethostname()) if Address.of(url).is_local else url


def at_hand(place: str) -> list[str]:
    """Return the URLs at which this machine may reach a Flink, by its place; none if the place is not a URL."""
    if not place.startswith(("http://", "https://")):
        return []
    # A Flink of this machine may listen on the loopback address alone.
    return [*([_on(place, "localhost")] if Address.of(place).host == socket.gethostname().lower() else []), place]


def _on(url: str, host: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=str(Address(host, Address.of(url).port))))
