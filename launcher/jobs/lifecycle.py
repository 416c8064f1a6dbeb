"""Lifecycle of a job: start and stop."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from redis.exceptions import RedisError

from cluster_serving.job.models.folder import check_model
from cluster_serving.job.options import JobOptions
from cluster_serving.job.remote.url import is_url
from cluster_serving.launcher.command_log import Say, say, warn
from cluster_serving.launcher.config import repository, versions
from cluster_serving.launcher.config.job_options import model_options, sized_for
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import capacity, elsewhere, foreign_jobs, hosted, lock
from cluster_serving.launcher.jobs.layout import decision
from cluster_serving.launcher.jobs.preparation import prepared
from cluster_serving.launcher.jobs.readiness import wait_ready
from cluster_serving.launcher.jobs.services import Services, services
from cluster_serving.launcher.jobs.store import generation_of, opened
from cluster_serving.launcher.services.flink_rest import Flink, Job
from cluster_serving.launcher.services.process import wait_until
from cluster_serving.launcher.shipping.inspection import inspect, shown
from cluster_serving.launcher.targets import Target, target_of
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.generations import SERVING
from cluster_serving.protocol.hosting.control import UNLOADED

_LISTED_WITHIN, _INITIALIZED_WITHIN = 2.0, 30.0
# Flink's REST API shows a job as it was up to 3 s ago (web.refresh-interval).
_TRACED_WITHIN = 6.0


@dataclass(frozen=True, slots=True)
class Started:
    """A job that answers requests, its page in the Flink UI, and version, engine, inputs and outputs of its model.

    `layout` describes its copies, threads and batches; it is empty where the job runs on other machines. `models` names
    those of a job that serves several.
    """

    config: Config
    page: str
    model: str
    layout: str = ""
    models: tuple[str, ...] = ()


def start(config: Config) -> Started:
    """Start a job, and Redis and Flink before it if needed; return when the model is loaded in every slot.

    Raises:
        LaunchError: If the job cannot be started, or runs already.
        ModelError: If the model folder does not hold exactly one model whose engine is installed.
    """
    config = checked(config)
    with services(config, "started") as provided:
        if running := provided.flink.jobs(config.job_name):
            raise LaunchError(
                f"job {config.job_name} is {running[0].state} already; use cluster-serving-restart, "
                f"cluster-serving-stop {config.job_name}, or another jobName"
            )
        hosted.refuse(provided.store, "choose another jobName")
        elsewhere.refuse(provided.store, provided.flink, "started")
        config = provided.target.fitted(config)
        started = start_with(provided, *prepared(provided, config))
        provided.tidy()
        return started


def stop(config: Config, job: str) -> bool:
    """Stop a job; its queued requests stay in Redis and wait for the next start.

    Return False if the job did not run, as one whose start failed; from then on it counts as stopped.

    Raises:
        LaunchError: If no such job runs, and none counts as started; or if it runs in another Flink.
    """
    target = target_of(config)
    with lock.for_job(config, job):
        # Even if it does not run: after a death of the JobManager it may be about to come back.
        target.records.forget(job)
        with jobs_of(target, job) as (active, flink):
            if not active:
                with suppress(RedisError, ServingError, OSError), opened(config, job) as store:
                    hosted.refuse(store, "cluster-serving-stop {host} stops all of its models")
            if not active and not _counts_as_started(config, job, flink):
                names = ", ".join(other.name for other in flink.jobs()) or "none"
                raise LaunchError(f"no job {job} is running on {flink.where}; running: {names}")
            for running in active:
                say(f"Stopping job {job}")
                cancel(flink, running, config)
        if not active:
            _note_stopped(config, job, None)
    return bool(active)


@contextmanager
def jobs_of(target: Target, job: str) -> Iterator[tuple[list[Job], Flink]]:
    """Provide the jobs of a name, and Flink; there are none while the Flink of this machine does not run."""
    is_gone = target.config.target == "local" and not target.is_up()
    with target.flink() as flink:
        yield [] if is_gone else flink.jobs(job), flink


def refuse_elsewhere(config: Config, job: str, done: str) -> None:
    """Refuse to do something to a job, named in words, while it runs in another Flink than that of the configuration.

    Raises:
        LaunchError: If it does, or if the job of that name in this Flink has another Redis.
    """
    target = target_of(config)
    with (
        suppress(RedisError, ServingError, OSError),
        jobs_of(target, job) as (active, flink),
        opened(config, job) as store,
    ):
        if active:
            foreign_jobs.refuse(store, target.records, active, done)
        else:
            hosted.refuse(store, f"it is {done} with that job")
            elsewhere.refuse(store, flink, done)


def _counts_as_started(config: Config, job: str, flink: Flink) -> bool:
    """Return True if a job that this Flink does not have was started, by its Redis, and not stopped since."""
    states: set[str] = set()
    with suppress(RedisError, ServingError, OSError), opened(config, job) as store:
        elsewhere.refuse(store, flink, "stopped")
        states = {store.record().state, *(report.state for report in store.slots())}
    return bool(states - {"", "stopped", UNLOADED})


def is_running(config: Config) -> bool:
    """Return True if the job of a configuration runs; False also if its Flink does not run.

    Raises:
        LaunchError: If its Flink has a job of that name, but with another Redis.
    """
    target = target_of(config)
    if not target.is_up():
        return False
    with target.flink() as flink:
        running = flink.jobs(config.job_name)
    with opened(config) as store:
        foreign_jobs.refuse(store, target.records, running, "started")
    return bool(running)


def checked(config: Config) -> Config:
    """Find the version of the model, and check its files, and that the slots of the job fit on this machine if need be.

    The configuration that is returned names the folder of the version.
    """
    config = versions.resolved(config)
    if models := repository.find(shown(config)):
        if problem := repository.problem(config, models) or repository.misplacement(config, models.misplaced):
            raise LaunchError(f"{repository.place(config.model_path)} holds several models: {problem}")
        return repository.laid_out(config)
    if is_url(config.model_path):
        if config.watch_model:
            raise LaunchError(
                f"watchModel: true, and {repository.place(config.model_path)} is the address of one model, which is "
                "not watched; remove the key (cluster-serving-cli update fetches it again)"
            )
        return sized_for(config, inspect(config.model_path, warn, config.handler).engine)
    if config.target != "local" and config.ships == "nothing" and not Path(config.model_path).exists():
        if config.core_number_per_machine is not None:
            raise LaunchError(
                f"coreNumberPerMachine depends on the model's engine, and {config.model_path} is not on this machine; "
                "set modelParallelism and threadPerModel instead"
            )
        return config
    files = check_model(model_options(config))
    config = sized_for(config, files.format.engine)
    if target_of(config).is_here:
        capacity.check(config, files.paths)
    return config


def start_with(services: Services, config: Config, options: JobOptions) -> Started:
    """Start a job with these options; if that fails, the job counts as stopped, and Redis has the reason."""
    target, store, job = services.target, services.store, config.job_name
    with target.slots(config.slots):
        store.client.delete(store.keys.answered)
        store.note("starting", error="", log=target.home.log_of(job))
        store.begin(generation_of(options, SERVING, services.flink.place))
        gone = hosted.announce(store, options)
        try:
            started = submit(services, config, options)
            store.count_version(options)
            target.records.remember(options)
            store.note("running", layout=started.layout)
        except BaseException as error:
            # Also after Ctrl-C: a half started job would be in the way of the next start.
            target.records.forget(job)
            reason = str(error) if isinstance(error, Exception) else "the start was interrupted"
            with suppress(RedisError):
                # Slots that were ready may have answered: clients have seen the version.
                if int(store.client.get(store.keys.answered) or 0):
                    store.count_version(options)
            _note_stopped(config, job, options.submission, say, reason)
            raise
        # Not before: a restart that fails starts the job again as it was, with these models.
        for name in gone:
            hosted.remove(store, config, name, hosted.where(options))
    return started


def submit(services: Services, config: Config, options: JobOptions, generation: int | None = None) -> Started:
    """Submit a job, and wait until all of its slots are ready; if that fails, nothing of it is left.

    `generation` is the number of a generation beside the one that serves.

    Raises:
        LaunchError: If the job does not start.
    """
    target, flink, job = services.target, services.flink, config.job_name
    job_id, log = "", target.home.log_of(job)
    try:
        services.store.announce(options.submission, config.slots, generation)
        job_id = target.submit(options)
        slot = wait_ready(services.store, flink, config, job_id, options.submission, generation)
    except BaseException as error:
        if job_id and isinstance(error, LaunchError):
            _log_failure(log, error, flink, job_id)
        say(f"Cancelling job {job}")
        try:
            for submitted in [job_id] if job_id else _submitted(flink, job, options.submission):
                flink.cancel(submitted)
        except LaunchError as second:
            # Not raised: the command ends with the reason why the start failed.
            say(f"job {job} may still run: {second}")
        if type(error) is LaunchError:
            raise LaunchError(options.model.as_configured(str(error))) from None
        raise
    if options.hosted:
        model, served = hosted.described(services.store)
        return Started(config, flink.page(job_id), model, models=tuple(served))
    return Started(
        config, flink.page(job_id), slot.summary, decision.described(target, services.store, config, options)
    )


def _log_failure(log: Path, error: LaunchError, flink: Flink, job_id: str) -> None:
    """Append the cause of a failed start to its log; a slot reports its error before Flink knows the stack trace."""
    with suppress(LaunchError, OSError):
        wait_until(lambda: flink.trace(job_id) is not None, _TRACED_WITHIN)
        trace = flink.trace(job_id) or f"Flink has no stack trace; its logs are in {log.parent}"
        with log.open("a", encoding="utf8") as file:
            file.write(f"\n{time.strftime('%Y-%m-%d %H:%M:%S')} the start failed: {error}\n{trace}\n")


def _submitted(flink: Flink, name: str, submission: str) -> list[str]:
    """Return the ids of the jobs that Flink has of a submission."""
    ids: list[str] = []
    listed_by = time.monotonic() + _LISTED_WITHIN

    def is_settled() -> bool:
        ids[:] = [job.id for job in flink.jobs(name) if job.submission == submission]
        # Flink may have taken a job that it does not list yet.
        return bool(ids) or (time.monotonic() > listed_by and not flink.has_new(name))

    wait_until(is_settled, _INITIALIZED_WITHIN)
    return ids


def cancel(flink: Flink, job: Job, config: Config, tell: Say = warn) -> None:
    """Cancel a job, and note in Redis that it is stopped; `tell` receives a message if Redis does not take the note."""
    flink.cancel(job.id)
    _note_stopped(config, job.name, job.submission, tell)


def _note_stopped(config: Config, job: str, submission: str | None, tell: Say = warn, error: str | None = None) -> None:
    """Note in Redis that a submission of a job is stopped, or with None all of them, or why its start failed."""
    # The slots have ended, so they cannot write a later report.
    try:
        with opened(config, job) as store:
            store.note_stopped(submission, keep_failures=error is not None)
            for number, generation in store.generations().all.items():
                if submission in (None, generation.submission):
                    store.end(number)
            store.note("failed" if error else "stopped", error)
    except (ServingError, RedisError, OSError) as error:
        tell(f"front ends do not learn that job {job} is stopped, as Redis does not take it: {error}")
