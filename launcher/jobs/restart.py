"""Restart of a job, which goes back to what it was if it does not start."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from redis.exceptions import RedisError

from cluster_serving.job.options import JobOptions
from cluster_serving.launcher.command_log import say, warn
from cluster_serving.launcher.config import repository
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.config.model import NO_FOLDER, Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import elsewhere, hosted, payload_folder, preflight
from cluster_serving.launcher.jobs.lifecycle import Started, cancel, checked, start_with
from cluster_serving.launcher.jobs.preparation import prepared
from cluster_serving.launcher.jobs.services import Services, services
from cluster_serving.launcher.services.flink_rest import Job
from cluster_serving.launcher.shipping.inspection import shown
from cluster_serving.launcher.targets.resubmit import TIMEOUT_S as RESUBMITTED_WITHIN


def restart(config: Config) -> Started:
    """Start a job, after stopping it if it runs; see `rollout.change.update` for a change without a gap.

    Before a job is stopped, its new model is loaded in a process of its own. If the job does not start all the same, it
    is started again as it was.

    Raises:
        LaunchError: If the job cannot be started as configured now; the message says if it runs as it was.
        ModelError: As for `start`.
    """
    config = checked(config)
    with services(config, "restarted") as provided:
        target, job = provided.target, config.job_name
        config = target.fitted(config)
        running = provided.flink.jobs(job)
        earlier = None
        if running:
            _preflight(provided, config)
            earlier = provided.options_now()
        else:
            hosted.refuse(provided.store, "choose another jobName")
            elsewhere.refuse(provided.store, provided.flink, "restarted")
        started = _replace(provided, config, running, earlier, lambda: prepared(provided, config))
        if earlier:
            target.records.keep_earlier(earlier)
        provided.tidy()
        return started


def resize(provided: Services, config: Config, earlier: JobOptions, slots: int) -> tuple[Started, JobOptions]:
    """Start a job of several models with another number of slots, after stopping it; return its options, too.

    Raises:
        LaunchError: If the job does not start; the message says if it runs as it was.
    """
    threads = earlier.model.thread_per_model
    if threads == repository.default_threads(earlier.model_parallelism):
        threads = repository.default_threads(slots)
    options = replace(
        earlier,
        model_parallelism=slots,
        model=replace(earlier.model, thread_per_model=threads),
        hosted=tuple(replace(one, model=replace(one.model, thread_per_model=threads)) for one in earlier.hosted),
    )
    config, options = again(provided, config, options)
    running = provided.flink.jobs(config.job_name)
    started = _replace(provided, config, running, earlier, lambda: (config, options))
    provided.tidy()
    return started, options


def _replace(
    provided: Services,
    config: Config,
    running: Sequence[Job],
    earlier: JobOptions | None,
    make: Callable[[], tuple[Config, JobOptions]],
) -> Started:
    """Stop a job, and start what `make` returns; if that does not start, start the job again as it was `earlier`."""
    job = config.job_name
    provided.target.records.forget(job)
    for each in running:
        say(f"Stopping job {job}")
        cancel(provided.flink, each, config)
    options = None
    try:
        config, options = make()
        return start_with(provided, config, options)
    except (LaunchError, RedisError) as error:
        if earlier is None:
            raise
        outcome = "runs again as it was"
        try:
            _start_again(provided, config, earlier, (options or earlier).redis.payload_folder)
            provided.store.note("running", error=str(error))
        except (LaunchError, RedisError) as second:
            outcome = f"does not start as it was, either: {second}"
        raise LaunchError(f"{error}; job {job} {outcome}") from None


def _preflight(services: Services, config: Config) -> None:
    """Check that the model of a job can be loaded, where that is possible beside the job that runs.

    Raises:
        LaunchError: If the model cannot be loaded, or the name of one of several is taken.
    """
    secret = services.store.secret(config)
    if models := repository.find(shown(config)):
        # A model that cannot be loaded does not keep the others from starting.
        try:
            hosted.check_free(services.store, models.names, repository.place(config.model_path))
        except LaunchError as error:
            raise LaunchError(f"{error}; job {config.job_name} goes on as it was") from None
        return
    options = job_options(config, "preflight")
    if not services.target.is_here or secret is None:
        return
    if not preflight.fits(options):
        warn("the new model is not loaded before the old one is stopped: both may not fit into memory")
        return
    say("Loading the new model, before the old one is stopped")
    try:
        preflight.run(services.target.home, options, secret, config.start_timeout)
    except LaunchError as error:
        raise LaunchError(f"{error}; job {config.job_name} goes on as it was") from None


def _start_again(services: Services, config: Config, options: JobOptions, folder: str) -> None:
    """Start a job with the options that it had before; the inputs of waiting requests are in `folder`."""
    say(f"Starting job {config.job_name} again as it was")
    config, options = again(services, config, options)
    redis = replace(options.redis, payload_folder=payload_folder.ensure(config, folder))
    start_with(services, config, replace(options, redis=redis))


def again(services: Services, config: Config, options: JobOptions) -> tuple[Config, JobOptions]:
    """Return configuration and options of a new generation that is as one of before."""
    place = options.redis.payload_folder
    before = {
        "job_name": options.redis.job,
        "model_parallelism": options.model_parallelism,
        "thread_per_model": options.model.thread_per_model,
        "start_timeout": max(config.start_timeout, int(RESUBMITTED_WITHIN)),
        "payload_folder": str(Path(place).parent) if place else NO_FOLDER,
    }
    number = services.store.next_number()
    # The model is the one of that time, and so is its version.
    redis = replace(options.redis, generation=number, shadow=False)
    return config.model_copy(update=before), replace(options, submission=uuid.uuid4().hex, redis=redis)
