"""Starting and stopping jobs: what the commands do, without their output."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from redis import Redis
from redis.exceptions import RedisError

from cluster_serving.job.main import check_model
from cluster_serving.launcher.config.job_options import job_options, model_options, sized_for
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import payload_folder, resubmit
from cluster_serving.launcher.jobs.flink_rest import FlinkRest, Job
from cluster_serving.launcher.jobs.readiness import note_stopped, wait_ready
from cluster_serving.launcher.jobs.submission import submit
from cluster_serving.launcher.services import flink_cluster, front_end, redis_server, state
from cluster_serving.launcher.services.flink_cluster import FlinkCluster
from cluster_serving.launcher.services.process import is_listening, wait_until
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.keys import (
    PAYLOAD_FOLDER,
    answered_key,
    limits_key,
    missing_secret,
    secret_key,
    slots_key,
)

Say = Callable[[str], None]

_LISTED_WITHIN, _INITIALIZED_WITHIN = 2.0, 30.0


@dataclass(frozen=True, slots=True)
class Started:
    """A job that answers requests.

    Attributes:
        config: What it runs with.
        job_id: Flink's id of it.
        page: Its page in the Flink UI.
        engine: Name of the engine.
        model: What the model expects and gives.
    """

    config: Config
    job_id: str
    page: str
    engine: str
    model: str


def start(config: Config, say: Say = lambda _: None) -> Started:
    """Start a job, and Redis and Flink before it if needed; return when the model is loaded in every slot.

    Args:
        config: The job.
        say: Told what happens.

    Raises:
        LaunchError: It could not be started, or runs already.
        ModelError: The model folder does not hold one model whose engine is installed.
    """
    engine = check_model(model_options(config))
    config = sized_for(config, engine)
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
        client.delete(slots_key(config.job_name), answered_key(config.job_name))
        say(f"Submitting job {config.job_name}")
        earlier = os.fsdecode(client.hget(limits_key(config.job_name), PAYLOAD_FOLDER) or b"")
        options = job_options(config, submission, payload_folder.ensure(config, earlier))
        job_id = ""
        try:
            job_id = submit(cluster.home, cluster.address, options, config.start_timeout)
            slot = wait_ready(client, rest, config, job_id, submission, say)
            if cluster.is_ours:
                resubmit.remember(cluster.home.path, options)
        except BaseException:
            # Also when the user gives up: a half started job would refuse the next start.
            resubmit.forget(cluster.home.path, config.job_name)
            _give_up(rest, config.job_name, job_id, submission, say)
            raise
        return Started(config, job_id, rest.page(job_id), engine, slot.model)


def stop(config: Config, job: str, say: Say = lambda _: None) -> Job:
    """Stop a job; its queued requests stay in Redis and wait for the next start.

    Args:
        config: Where its Flink and its Redis are.
        job: Its `jobName`.
        say: Told what is not as it should be.

    Raises:
        LaunchError: No such job runs.
    """
    # Even if it does not run: it may be about to come back after a death of the JobManager.
    resubmit.forget(flink_cluster.folder(config.flink_address), job)
    with FlinkRest(config.flink_rest_url) as rest:
        active = rest.jobs(job)
        if not active:
            names = ", ".join(other.name for other in rest.jobs()) or "none"
            raise LaunchError(f"no job {job} is running on {config.flink_rest_url}; running: {names}")
        for found in active:
            _cancel(rest, found, config, say)
    return active[0]


def is_running(config: Config) -> bool:
    """Whether the job of a configuration runs; not, if its Flink does not either."""
    if not is_listening(config.flink_address):
        return False
    FlinkCluster(config).check()
    with FlinkRest(config.flink_rest_url) as rest:
        return bool(rest.jobs(config.job_name))


def shutdown(config: Config | None, say: Say = lambda _: None) -> bool:
    """Stop all jobs, and Redis and Flink if they were started here; what that Redis held is removed.

    Args:
        config: Says where Redis and Flink are; None for all that were started here.
        say: Told what happens.

    Returns:
        Whether there was anything to stop.
    """
    flinks = [config.flink_address] if config else state.addresses(flink_cluster.SERVICE)
    redises = [config.redis_address] if config else state.addresses(redis_server.SERVICE)
    found = False
    for server in state.addresses(front_end.SERVICE):
        if front_end.stop(server, config.redis_address if config else None):
            say(f"Stopped the HTTP front end on port {server.port}")
            found = True
    for flink in flinks:
        if is_listening(flink):
            found |= _stop_all(config.flink_rest_url if config else f"http://{flink}", config, say)
        if flink_cluster.stop(flink):
            say(f"Stopped Flink on port {flink.port}")
            found = True
    for redis in redises:
        if redis_server.stop(redis):
            say(f"Stopped Redis on port {redis.port} and removed its data: queued requests and results")
            found = True
    return found


def _give_up(rest: FlinkRest, name: str, job_id: str, submission: str, say: Say) -> None:
    """Cancel what a start has left behind; `job_id` is empty if it was cut short before it knew that."""
    say(f"Cancelling job {name}")
    try:
        for found in [job_id] if job_id else _submitted(rest, name, submission):
            rest.cancel(found)
    except LaunchError as error:
        # What made the start fail is what has to be told last.
        say(f"job {name} may still run: {error}")


def _submitted(rest: FlinkRest, name: str, submission: str) -> list[str]:
    """Ids of the jobs of a submission, of which nobody has been told."""
    found: list[str] = []
    listed_by = time.monotonic() + _LISTED_WITHIN

    def is_settled() -> bool:
        found[:] = [job.id for job in rest.jobs(name) if job.submission == submission]
        # Flink may have taken a job that it does not list yet.
        return bool(found) or (time.monotonic() > listed_by and not rest.knows_little_of(name))

    wait_until(is_settled, _INITIALIZED_WITHIN)
    return found


def _store_secret(client: Redis, config: Config, say: Say) -> None:
    """Put the secret of an encrypted model where its slots look for it, or say that they wait for it."""
    key = secret_key(config.job_name)
    if config.model_secret:
        client.hset(key, mapping=dict(zip(("secret", "salt"), config.model_secret, strict=True)))
    elif not client.exists(key):
        say(f"{missing_secret(config.job_name)}, within a minute; or set CLUSTER_SERVING_MODEL_SECRET")


def _cancel(rest: FlinkRest, job: Job, config: Config, say: Say) -> None:
    rest.cancel(job.id)
    # Its slots are gone by now, so nothing they still write comes after this.
    try:
        with redis_server.connect(config, job=job.name) as client:
            note_stopped(client, job.name, job.submission)
    except (ServingError, RedisError, OSError) as error:
        say(f"front ends will go on to call job {job.name} ready, as Redis does not take that it is stopped: {error}")


def _stop_all(flink_rest_url: str, config: Config | None, say: Say) -> bool:
    with FlinkRest(flink_rest_url) as rest:
        try:
            jobs = rest.jobs() if rest.overview() else []
            for job in jobs:
                say(f"Stopping job {job.name}")
                if config is None:
                    # What was started here held its Redis too, which is removed.
                    rest.cancel(job.id)
                else:
                    _cancel(rest, job, config, say)
        except LaunchError as error:
            # A cluster that was started here is stopped all the same.
            say(str(error))
            return False
        return bool(jobs)
