"""Lifecycle of jobs: start, stop, and shutdown of all that was started."""

import os
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from cluster_serving.job.main import check_model
from cluster_serving.launcher.config.job_options import job_options, model_options, sized_for
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import payload_folder, record, resubmit
from cluster_serving.launcher.jobs.readiness import announce, note_stopped, wait_ready
from cluster_serving.launcher.jobs.submission import log_of, submit
from cluster_serving.launcher.services import flink_cluster, front_end, redis_server, state
from cluster_serving.launcher.services.flink_cluster import FlinkCluster
from cluster_serving.launcher.services.flink_rest import FlinkRest, Job
from cluster_serving.launcher.services.process import Process, is_listening, wait_until
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import (
    PAYLOAD_FOLDER,
    answered_key,
    limits_key,
    missing_secret,
    secret_key,
)

Say = Callable[[str], None]

_LISTED_WITHIN, _INITIALIZED_WITHIN, _TRACED_WITHIN = 2.0, 30.0, 2.0


@dataclass(frozen=True, slots=True)
class Started:
    """A job that answers requests, its page in the Flink UI, and engine, inputs and outputs of its model in words."""

    config: Config
    page: str
    model: str


def start(config: Config, say: Say = lambda _: None) -> Started:
    """Start a job, and Redis and Flink before it if needed; return when the model is loaded in every slot.

    Raises:
        LaunchError: If the job cannot be started, or runs already.
        ModelError: If the model folder does not hold exactly one model whose engine is installed.
    """
    config = sized_for(config, check_model(model_options(config)).format.engine)
    cluster = FlinkCluster(config, say)
    cluster.check_usable()
    redis_server.ensure(config, say)
    cluster.ensure()
    with (
        flink_cluster.submitting(cluster.address),
        FlinkRest(config.flink_rest_url) as rest,
        redis_server.connect(config) as client,
    ):
        running = rest.jobs(config.job_name)
        if running:
            raise LaunchError(
                f"job {config.job_name} is {running[0].state} already; use cluster-serving-restart, "
                f"cluster-serving-stop {config.job_name}, or another jobName"
            )
        cluster.ensure_slots(config.model_parallelism)
        if config.model_encrypted:
            _store_secret(client, config, say)
        submission = uuid.uuid4().hex
        client.delete(answered_key(config.job_name))
        say(f"Submitting job {config.job_name}")
        earlier = os.fsdecode(client.hget(limits_key(config.job_name), PAYLOAD_FOLDER) or b"")
        options = job_options(config, submission, payload_folder.ensure(config, earlier))
        job_id, log = "", log_of(cluster.home, config.job_name)
        try:
            record.note(client, config.job_name, "starting", error="", log=log)
            announce(client, config.job_name, submission, config.model_parallelism)
            job_id = submit(cluster.home, cluster.address, options, config.start_timeout)
            slot = wait_ready(client, rest, config, job_id, submission, say)
            if cluster.is_ours:
                resubmit.remember(cluster.home.path, options)
            record.note(client, config.job_name, "running")
        except BaseException as error:
            # Also after Ctrl-C: a half started job would be in the way of the next start.
            resubmit.forget(cluster.home.path, config.job_name)
            if job_id and isinstance(error, LaunchError):
                _log_failure(log, error, rest, job_id)
            _give_up(rest, config, job_id, submission, say, error)
            raise
        return Started(config, rest.page(job_id), slot.model)


def stop(config: Config, job: str, say: Say = lambda _: None) -> Job:
    """Stop a job, and return it; its queued requests stay in Redis and wait for the next start.

    `say` receives a message if Redis does not take that the job is stopped.

    Raises:
        LaunchError: If no such job runs.
    """
    # Even if it does not run: after a death of the JobManager it may be about to come back.
    resubmit.forget(flink_cluster.folder(config.flink_address), job)
    with FlinkRest(config.flink_rest_url) as rest:
        active = rest.jobs(job)
        if not active:
            names = ", ".join(other.name for other in rest.jobs()) or "none"
            raise LaunchError(f"no job {job} is running on {config.flink_rest_url}; running: {names}")
        for running in active:
            _cancel(rest, running, config, say)
    return active[0]


def is_running(config: Config) -> bool:
    """Return True if the job of a configuration runs; False also if its Flink does not run."""
    if not is_listening(config.flink_address):
        return False
    FlinkCluster(config).check()
    with FlinkRest(config.flink_rest_url) as rest:
        return bool(rest.jobs(config.job_name))


def unsupervised(config: Config) -> list[str]:
    """Return the processes that were started here for a configuration and that nothing would start again."""
    homes = [redis_server.folder(config.redis_address), flink_cluster.folder(config.flink_address)]
    homes += [state.folder(front_end.SERVICE, address) for address in state.addresses(front_end.SERVICE)]
    # Commands remove the record of a process that they stop.
    records = (record for home in homes for record in sorted(home.glob("*.json")))
    return [f"{record.parent.name}/{record.stem}" for record in records if Process.read(record) is None]


def shutdown(config: Config | None, say: Say = lambda _: None) -> bool:
    """Stop all jobs, and the Redis and Flink that were started here; the data of that Redis is removed.

    Return True if there was anything to stop. Without a configuration, all that was started here is stopped.
    """
    stopped = False
    for server in state.addresses(front_end.SERVICE):
        if front_end.stop(server, config.redis_address if config else None):
            say(f"Stopped the HTTP front end on port {server.port}")
            stopped = True
    for flink in [config.flink_address] if config else state.addresses(flink_cluster.SERVICE):
        if is_listening(flink):
            stopped |= _stop_all(config.flink_rest_url if config else f"http://{flink}", config, say)
        if flink_cluster.stop(flink):
            say(f"Stopped Flink on port {flink.port}")
            stopped = True
    for redis in [config.redis_address] if config else state.addresses(redis_server.SERVICE):
        if redis_server.stop(redis):
            say(f"Stopped Redis on port {redis.port} and removed its data: queued requests and results")
            stopped = True
    return stopped


def _log_failure(log: Path, error: LaunchError, rest: FlinkRest, job_id: str) -> None:
    """Append the cause of a failed start to its log; a slot reports its error before Flink knows the stack trace."""
    with suppress(LaunchError, OSError):
        wait_until(lambda: rest.trace(job_id) is not None, _TRACED_WITHIN)
        trace = rest.trace(job_id) or f"Flink has no stack trace; its logs are in {log.parent}"
        with log.open("a", encoding="utf8") as file:
            file.write(f"\n{time.strftime('%Y-%m-%d %H:%M:%S')} the start failed: {error}\n{trace}\n")


def _give_up(rest: FlinkRest, config: Config, job_id: str, submission: str, say: Say, reason: BaseException) -> None:
    """Cancel the job of a start that failed; `job_id` is empty if `flink run` has not told it."""
    name = config.job_name
    say(f"Cancelling job {name}")
    try:
        for submitted in [job_id] if job_id else _submitted(rest, name, submission):
            rest.cancel(submitted)
    except LaunchError as error:
        # Not raised: the command ends with the reason why the start failed.
        say(f"job {name} may still run: {error}")
        submission = ""
    known = isinstance(reason, Exception)
    _note_stopped(config, name, submission, say, str(reason) if known else "the start was interrupted")


def _submitted(rest: FlinkRest, name: str, submission: str) -> list[str]:
    """Return the ids of the jobs that Flink has of a submission."""
    ids: list[str] = []
    listed_by = time.monotonic() + _LISTED_WITHIN

    def is_settled() -> bool:
        ids[:] = [job.id for job in rest.jobs(name) if job.submission == submission]
        # Flink may have taken a job that it does not list yet.
        return bool(ids) or (time.monotonic() > listed_by and not rest.has_new(name))

    wait_until(is_settled, _INITIALIZED_WITHIN)
    return ids


def _store_secret(client: Redis, config: Config, say: Say) -> None:
    """Store the secret of an encrypted model for its slots, or say that they wait for it."""
    key = secret_key(config.job_name)
    if config.model_secret:
        client.hset(key, mapping=dict(zip(("secret", "salt"), config.model_secret, strict=True)))
    elif not client.exists(key):
        say(f"{missing_secret(config.job_name)}, within a minute; or set CLUSTER_SERVING_MODEL_SECRET")


def _cancel(rest: FlinkRest, job: Job, config: Config, say: Say) -> None:
    rest.cancel(job.id)
    _note_stopped(config, job.name, job.submission, say)


def _note_stopped(config: Config, job: str, submission: str, say: Say, error: str | None = None) -> None:
    # The slots have ended, so they cannot write a later report.
    try:
        with redis_server.connect(config, job=job) as client:
            note_stopped(client, job, submission)
            record.note(client, job, "failed" if error else "stopped", error)
    except (ServingError, RedisError, OSError) as error:
        say(f"front ends do not learn that job {job} is stopped, as Redis does not take it: {error}")


def _stop_all(flink_rest_url: str, config: Config | None, say: Say) -> bool:
    with FlinkRest(flink_rest_url) as rest:
        try:
            jobs = rest.jobs() if rest.overview() else []
            for job in jobs:
                say(f"Stopping job {job.name}")
                if config is None:
                    # The Redis of the job is removed too, so it needs no note there.
                    rest.cancel(job.id)
                else:
                    _cancel(rest, job, config, say)
        except LaunchError as error:
            # Not raised: a cluster that was started here is stopped all the same.
            say(str(error))
            return False
        return bool(jobs)
