"""The commands after which nothing is left: forget a job, shut down all."""

from typing import Annotated

import typer

from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.commands.arguments import (
    CONFIG_PATH,
    ConfigPath,
    JobName,
    config_of,
    logged_config,
    named,
)
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import job_status, lifecycle
from cluster_serving.launcher.jobs.removal import forget as forget_job
from cluster_serving.launcher.jobs.removal import losses, shut_down
from cluster_serving.launcher.jobs.store import opened
from cluster_serving.launcher.services import controller, redis_server
from cluster_serving.launcher.terminal import Progress, confirm, console


def forget(
    job: JobName = None,
    config_path: ConfigPath = CONFIG_PATH,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask before requests are lost.")] = False,
) -> None:
    """Remove a job that does not run, with its queued requests and dead letters, from its Redis and from this machine.

    Asks first if there are some.
    """
    config = config_of(config_path)
    name = named(job, config, config_path)
    redis_server.check(config)
    with opened(config, name) as store:
        lost = job_status.waiting(store)
        is_known = bool(lost) or store.is_known()
    if lost and not yes:
        confirm(
            f"This would be lost: {lost}. Remove job {name}?",
            f"job {name} was not removed, because this would be lost: {lost}. Use --yes to remove it",
        )
    with Progress():
        lifecycle.refuse_elsewhere(config, name, "removed")
        if controller.stop(config.redis_address, name):
            say("Stopped its controller")
        forget_job(config, name)
    if not is_known:
        raise LaunchError(
            f"Redis at {config.redis_shown} knows no job {name}, so nothing was removed there; cluster-serving-cli "
            "list shows the jobs"
        )
    console.print(f"Removed job {name}, with {lost}." if lost else f"Removed job {name}; no request waited for it.")


def shutdown(
    config_path: ConfigPath = CONFIG_PATH,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask before requests and results are lost.")] = False,
    keep_data: Annotated[bool, typer.Option("--keep-data", help="Keep the data of Redis for the next start.")] = False,
) -> None:
    """Stop all jobs, and the Redis and Flink that were started here; the data of that Redis is removed.

    Asks first if requests, results or dead letters would be lost. Logs stay. Without a configuration file, stop all
    that was started here.
    """
    config = None if config_path == CONFIG_PATH and not config_path.exists() else logged_config(config_path)
    if not (yes or keep_data) and (lost := losses(config)):
        confirm(
            f"This would be lost (--keep-data keeps it): {lost}. Stop all, and remove it?",
            f"nothing was stopped, because this would be lost: {lost}. Use --yes to remove it, or --keep-data to keep "
            "it for the next start",
        )
    with Progress():
        if not shut_down(config, keep_data):
            where = f"at {config.flink_address} and {config.redis_address}" if config else "that was started here"
            console.print(f"Nothing is running {where}.")
