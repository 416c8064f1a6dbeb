"""State of jobs, as `cluster-serving-cli list` and `status` show it: what Flink knows, and what their Redis knows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any

from redis.exceptions import RedisError, ResponseError

from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import elsewhere, foreign_jobs, hosted
from cluster_serving.launcher.jobs.hosted import HostedModel
from cluster_serving.launcher.jobs.recent import Recent, Totals, finite
from cluster_serving.launcher.jobs.store import JobRecord, JobStore, opened
from cluster_serving.launcher.services.flink_rest import Flink, FlinkRest, Job
from cluster_serving.launcher.targets import target_of
from cluster_serving.protocol.errors import RedisUnavailable, ServingError
from cluster_serving.protocol.figures.comparison import Comparison
from cluster_serving.protocol.generations import SHADOW, Generation, Generations
from cluster_serving.protocol.keys import GROUP, JOBS_KEY, NORMAL, PRIORITIES
from cluster_serving.protocol.redis.connection import address, translated
from cluster_serving.protocol.slots import HEARTBEAT_S, SlotReport

# Two heartbeats that were missed, and some time.
_SILENT_AFTER_S = 2.5 * HEARTBEAT_S
# What Flink knows is shown all the same.
_REDIS_ERRORS = (RedisError, ServingError, OSError)


@dataclass(frozen=True, slots=True)
class GenerationStatus:
    """State of one generation of a job.

    Attributes:
        number: Its number.
        role: Its role (`protocol.generations`).
        version: Version of its model.
        share: Percentage of the requests of a canary or shadow; 0 for others.
        job_id: Flink's id; empty if Flink does not have it.
        state: Flink's state.
        answered: Number of requests that it has answered.
        failed: Number of these that were answered with an error.
        p50_ms: Half of the requests were answered within so many milliseconds; None if there was none, or if that is
            more than a minute.
        p99_ms: 99 of 100 requests were.
    """

    number: int
    role: str
    version: str
    share: float
    job_id: str
    state: str
    answered: int
    failed: int
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class JobStatus:
    """State of a job.

    Attributes:
        name: `jobName`.
        state: Flink's state of a job that Flink has, such as `RUNNING`; `RESTARTING`, or `SILENT`, if Flink calls a job
            `RUNNING` although no task runs, or no slot gives heartbeats. Otherwise `STOPPED`, `FAILED`, `STARTING`, or
            of a job that no command has stopped, `LOST` if its Flink does not have it, and `UNKNOWN` if its Flink is
            another one that does not answer, or if its Flink does not answer and its slots give heartbeats.
        since: Time at which the state began, in seconds since the epoch; for a job that Flink has, time of its start.
            None if unknown.
        job_id: Flink's id; empty if Flink does not have the job.
        slots: Number of slots that the job uses.
        ready: Number of these that answer requests.
        restarts: Number of times that Flink has started the job again; the most of its slots, if they tell.
        answered: Number of requests answered since `cluster-serving-start`; None if Redis does not tell.
        error: The last error; empty if there was none since the last start that succeeded, or since all slots answer
            requests again.
        error_time: Time of that error, in seconds since the epoch; None if unknown.
        failure_time: Time of the latest failure after which Flink has started the job again; None without one.
        hosted: The models of a job that serves several; the numbers of the job are the sums of theirs.
        log: File with the output of the last start, and its machine if that is another one.
        layout: Copies, threads and batches of the job in words; empty if it runs on other machines.
        controller: What the controller of the job does, where, and what it did last; empty if none runs.
        reports: Reports of the slots.
        generations: Its generations, of which two run during a change.
        comparison: Comparison of the answers of its shadow; None without one.
        dead_letters: Number of its dead letters; None if Redis does not tell.
        recent: What it does now; None if it does not run, or was not watched.
        flink: Its Flink, if that is another one than the command's (`elsewhere.Elsewhere.place`); else empty.
    """

    name: str
    state: str
    since: float | None
    job_id: str
    slots: int
    restarts: int
    answered: int | None
    error: str
    log: str
    layout: str
    controller: str
    reports: tuple[SlotReport, ...]
    generations: tuple[GenerationStatus, ...] = ()
    comparison: Comparison | None = None
    dead_letters: int | None = None
    recent: Recent | None = None
    flink: str = ""
    ready: int = 0
    error_time: float | None = None
    failure_time: float | None = None
    hosted: tuple[HostedModel, ...] = ()

    @property
    def is_known(self) -> bool:
        """True if the job runs, or has run."""
        return bool(self.job_id or self.since or self.reports)

    @property
    def runs(self) -> bool:
        """True if a Flink has the job, or its slots answer requests."""
        return bool(self.job_id) or (bool(self.flink) and self.state == "RUNNING")

    @property
    def is_well(self) -> bool:
        """True if the job runs, and no slot reports that it has failed."""
        return self.state == "RUNNING" and not any(report.has_failed for report in self.reports)

    def summary(self) -> dict[str, Any]:
        """Return all but the reports, the comparison and what it does now, ready for JSON."""
        values = asdict(self)
        del values["reports"], values["comparison"], values["recent"]
        for name in ("since", "error_time", "failure_time"):
            if values[name] is not None:
                values[name] = datetime.fromtimestamp(values[name], timezone.utc).isoformat(timespec="seconds")
        return values


def read_all(config: Config, flink: Flink) -> list[JobStatus]:
    """Return the jobs that Flink has, and after them the others that its Redis knows.

    Raises:
        LaunchError: If Flink does not answer, and Redis knows no job either.
    """
    jobs, problem = _jobs(flink)
    others = sorted(_known(config) - {job.name for job in jobs})
    if problem and not others:
        raise LaunchError(problem)
    running: dict[str, list[Job]] = {}
    for job in jobs:
        running.setdefault(job.name, []).append(job)
    return [_read(config, flink, name, of_name, "") for name, of_name in running.items()] + [
        _read(config, flink, name, [], problem) for name in others
    ]


def read(config: Config, flink: Flink, name: str) -> JobStatus:
    """Return the state of one job.

    Raises:
        LaunchError: If nothing is known of the job.
    """
    jobs, problem = _jobs(flink, name)
    if not jobs:
        with suppress(*_REDIS_ERRORS), opened(config, name) as store:
            hosted.refuse(store, "cluster-serving-cli status {host} shows it")
    status = _read(config, flink, name, jobs, problem)
    if not status.is_known:
        raise LaunchError(
            problem
            or f"no job {name} is running on {flink.where}, and Redis knows none of this name; cluster-serving-cli "
            "list shows the jobs"
        )
    return status


def watched(config: Config, flink: Flink, store: JobStore, name: str, seconds: float) -> Iterator[JobStatus]:
    """Yield the state of a job again and again; a running job's with what it did in the `seconds` before.

    Raises:
        LaunchError: If nothing is known of the job.
    """
    while True:
        before = Totals.of(store)
        found = read(config, flink, name)
        if found.runs:
            time.sleep(max(0.0, before.time + seconds - time.monotonic()))
            found = replace(found, recent=Recent.since(before, store))
        yield found


def queue(store: JobStore) -> dict[str, int]:
    """Return the number of queued requests by priority, and as `pending` the number of those being worked on."""
    stores = hosted.stores(store)
    lengths = {priority: sum(store.client.xlen(one.keys.stream(priority)) for one in stores) for priority in PRIORITIES}
    return lengths | {"pending": sum(_pending(store, stream) for one in stores for stream in one.keys.streams)}


def waiting(store: JobStore) -> str:
    """Return in words what would be lost with the keys of a job; empty for nothing."""
    stores = hosted.stores(store)
    requests = sum(store.client.xlen(stream) for one in stores for stream in one.keys.streams)
    dead = sum(store.client.xlen(one.keys.dead_letters) for one in stores)
    counts = {"waiting request": requests, "dead letter": dead}
    return ", ".join(f"{count} {name}{'s' * (count != 1)}" for name, count in counts.items() if count)


def _jobs(flink: Flink, name: str | None = None) -> tuple[list[Job], str]:
    """Return the jobs that Flink has, and why it does not tell them."""
    try:
        return flink.jobs(name), ""
    except LaunchError as error:
        return [], str(error)


def _known(config: Config) -> set[str]:
    # In a Redis Cluster, and for a user without the right, only the job of the configuration can be found by its name.
    known: set[str] = set()
    with suppress(*_REDIS_ERRORS), opened(config) as store:
        if store.record().state:
            known.add(config.job_name)
        known |= store.client.smembers(JOBS_KEY)
    return known


def _read(config: Config, flink: Flink, name: str, jobs: list[Job], problem: str) -> JobStatus:
    recorded, reports, answered, controller = JobRecord(), [], None, ""
    now, shown, compared, refused, dead, other = Generations(), [], None, "", None, None
    models: list[HostedModel] = []
    with suppress(*_REDIS_ERRORS), opened(config, name) as store:
        recorded, reports = store.record(), store.slots(silent_after=_SILENT_AFTER_S)
        if recorded.state == "starting" and not store.client.exists(store.keys.command):
            recorded = replace(recorded, state="failed", error="the command that started the job was killed")
        if recorded.state and foreign_jobs.are_foreign(store, target_of(config).records, jobs):
            jobs = []
        count = store.client.get(store.keys.answered)
        # A job that only Flink knows may have another Redis.
        answered = int(count or 0) if count or recorded.state or reports or not jobs else None
        models = hosted.read(store)
        if described := store.client.hgetall(store.keys.controller):
            controller = "{tasks} on {host}; {event}".format_map(described)
        if refused := _refused(store):
            # They cannot give a sign of life.
            reports = [replace(one, error=refused) if one.state == "silent" else one for one in reports]
        if answered is not None:
            answered += sum(one.answered for one in models)
            dead = store.client.xlen(store.keys.dead_letters) + sum(one.dead_letters for one in models)
        if not jobs and (other := elsewhere.find(store, [flink.place])):
            jobs = list(other.jobs)
        now = store.generations()
        shown = [_generation(store, each, jobs) for each in now.all.values()]
        if shadow := now.of_role(SHADOW):
            compared = store.comparison(shadow.number)
    serving = now.serving.submission if now.serving else ""
    job = next((job for job in jobs if job.submission == serving), jobs[0] if jobs else None)
    failed = next((report for report in reports if report.has_failed and report.error), None)
    error, at = _error(refused, failed, recorded)
    status = JobStatus(
        name=name,
        state=recorded.state.upper() or "STOPPED",
        since=recorded.since or None,
        job_id="",
        slots=0,
        restarts=0,
        answered=answered,
        error=error,
        error_time=at,
        log=recorded.place,
        layout=recorded.layout,
        controller=controller,
        reports=tuple(reports),
        generations=tuple(shown),
        comparison=compared,
        dead_letters=dead,
        hosted=tuple(models),
        flink=other.place if other else "",
    )
    ready = sum(report.state == "ready" for report in reports)
    if job and other:
        with suppress(LaunchError), FlinkRest(other.url) as its_own:
            return _as_flink_says(status, its_own, job, bool(refused))
    if job and not other:
        return _as_flink_says(status, flink, job, bool(refused))
    if other and status.state != "STARTING":
        error = status.error or other.problem
        return replace(status, state=other.state, slots=len(reports), ready=ready, since=None, error=error)
    if status.state == "RUNNING" and problem and ready:
        return replace(status, state="UNKNOWN", slots=len(reports), ready=ready, since=None, error=problem)
    if status.state == "RUNNING":
        lost = problem or _end(flink, name) or f"{flink.where} does not have the job any more"
        return replace(status, state="LOST", since=None, error=status.error or lost)
    return status


def _error(refused: str, failed: SlotReport | None, recorded: JobRecord) -> tuple[str, float | None]:
    """Return the error that says most of the state of a job, and its time."""
    if refused:
        return refused, time.time()
    if failed:
        return failed.error or "", failed.time
    return recorded.error, (recorded.error_time or None) if recorded.error else None


def _as_flink_says(status: JobStatus, flink: Flink, job: Job, is_refused: bool) -> JobStatus:
    """Return the state of a job that Flink has. With `is_refused`, its slots cannot give heartbeats."""
    slots, running, failure = flink.parallelism(job.id), flink.running(job.id), flink.failure(job.id)
    reports = _of_living(status.reports, running, failure)
    states = [report.state for report in reports]
    ready, state, error, at = states.count("ready"), job.state, status.error, status.error_time
    if state == "RUNNING" and states and not ready and not is_refused and status.state != "STARTING":
        state = "SILENT" if set(states) == {"silent"} else "RESTARTING"
    if not error and failure and (state != "RUNNING" or ready < slots):
        at, error = failure
    return replace(
        status,
        state=state,
        since=time.time() - job.seconds,
        job_id=job.id,
        slots=slots,
        ready=ready,
        restarts=max((each.restarts for each in reports), default=flink.restarts(job.id)),
        error=error,
        error_time=at,
        failure_time=failure[0] if failure else None,
        reports=reports,
    )


def _of_living(
    reports: tuple[SlotReport, ...], running: int | None, failure: tuple[float | None, str] | None
) -> tuple[SlotReport, ...]:
    """Return the reports of slots; slots that died in the latest failure do not load the model yet."""
    if running != 0 or not failure or failure[0] is None:
        return reports
    # What Flink says may be some seconds old; a slot that is ready since the failure is alive.
    died = failure[0]
    return tuple(
        replace(one, state="loading") if one.state in ("ready", "silent") and one.time < died else one
        for one in reports
    )


def _refused(store: JobStore) -> str:
    """Return why Redis takes no writes, or no requests; empty if it takes them, or does not tell."""
    try:
        with translated(store.client):
            # A write that changes nothing: no entry has this id.
            store.client.xdel(store.keys.stream(NORMAL), "0-0")
            memory = store.client.info("memory")
    except RedisUnavailable as error:
        return str(error)
    except ServingError:
        return ""
    is_full = 0 < memory["maxmemory"] <= memory["used_memory"] and memory["maxmemory_policy"] == "noeviction"
    return (
        f"Redis at {address(store.client)} has reached its memory limit and takes no more requests" if is_full else ""
    )


def _generation(store: JobStore, generation: Generation, jobs: list[Job]) -> GenerationStatus:
    job = next((job for job in jobs if job.submission == generation.submission), None)
    stats = hosted.stats(store, generation.number)
    return GenerationStatus(
        generation.number,
        generation.role,
        generation.version,
        generation.share,
        job.id if job else "",
        job.state if job else "",
        stats.requests,
        stats.failures,
        finite(stats.latency(0.5)),
        finite(stats.latency(0.99)),
    )


def _end(flink: Flink, name: str) -> str:
    """Return why Flink ended a job that no command has stopped; empty if Flink does not know."""
    ended = flink.jobs(name, ended=True)
    if not ended:
        return ""
    told = f"the job was {ended[0].state} in Flink, by no command; cluster-serving-start starts it again"
    return flink.root_cause(ended[0].id) or told


def _pending(store: JobStore, stream: str) -> int:
    try:
        return int(store.client.xpending(stream, GROUP)["pending"])
    except ResponseError:
        # The stream or its group is gone, for instance after FLUSHALL.
        return 0
