"""The commands that start and stop a job, and their steps, which changes of a job share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cluster_serving.launcher.command_log import log, say
from cluster_serving.launcher.commands import report
from cluster_serving.launcher.commands.arguments import (
    CONFIG_PATH,
    ConfigPath,
    JobName,
    config_of,
    logged_config,
    named,
)
from cluster_serving.launcher.config import repository
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.jobs import lifecycle, model_files
from cluster_serving.launcher.rollout import model_change
from cluster_serving.launcher.services import controller, front_end
from cluster_serving.launcher.services.controller import WatchedModels
from cluster_serving.launcher.shipping.inspection import shown
from cluster_serving.launcher.terminal import Progress, console


def start(
    config_path: ConfigPath = CONFIG_PATH,
    http: Annotated[bool, typer.Option("--http", help="Start the HTTP front end too.")] = False,
    parallelism: Annotated[int | None, typer.Option("-p", "--parallelism", hidden=True, min=1)] = None,
    omp: Annotated[int | None, typer.Option("-o", "-t", "--omp", hidden=True, min=1)] = None,
) -> None:
    """Start a job, and Redis and Flink before it if needed; end when it answers requests."""
    # Options of the original's command.
    given = {"model_parallelism": parallelism, "thread_per_model": omp}
    config = logged_config(config_path).model_copy(update={key: value for key, value in given.items() if value})
    front_end.check(config, config_path, http)
    if http and lifecycle.is_running(config):
        console.print(f"Job {config.job_name} runs already.")
    else:
        start_job(config, config_path)
    if http:
        start_front_end(config, config_path)


def stop(job: JobName = None, config_path: ConfigPath = CONFIG_PATH) -> None:
    """Stop a job, or one of its models; queued requests stay in Redis."""
    config = logged_config(config_path) if config_path.exists() else config_of(config_path)
    name = named(job, config, config_path)
    if model_change.serves(config, name):
        with Progress():
            model_change.unload(config, name)
        console.print(f"Unloaded the model {name}; cluster-serving-cli update {name} loads it again.")
        return
    with Progress():
        lifecycle.refuse_elsewhere(config, name, "stopped")
        # It could start the job again.
        if controller.stop(config.redis_address, name):
            say("Stopped its controller")
        ran = lifecycle.stop(config, name)
    if not ran:
        console.print(
            f"Job {name} did not run; it counts as stopped now. cluster-serving-cli forget {name} removes it."
        )
        return
    own_flink = config.target.endswith("-application")
    rest = "Redis goes on" if own_flink else "Redis and Flink go on"
    console.print(f"Stopped job {name}. Its queued requests stay in Redis; {rest}.")


def start_job(config: Config, config_path: Path, start: Callable[..., lifecycle.Started] = lifecycle.start) -> None:
    """Start or restart a job, and print what it serves."""
    with Progress(), by_command(config, config_path):
        started = start(config)
    shown = report.started(started, config_path)
    log.info(shown.plain)
    console.print(shown)


@contextmanager
def by_command(config: Config, path: Path) -> Iterator[None]:
    """Start the controller of a job again when a command has changed the job, as the configuration may ask for another.

    It does not load again what the command has loaded, or has left.
    """
    watched = WatchedModels(model_files.look(config)) if config.watch_model else None
    yield
    controller.ensure(config, path, watched)


def start_front_end(config: Config, config_path: Path, again: bool = False) -> None:
    """Start the front end, or start it `again`, and print its addresses."""
    with Progress():
        url = front_end.ensure(config, config_path, again)
    console.print(f"    HTTP  {url}{'/models/NAME' if repository.find(shown(config)) else ''}/predict")
    console.print(f"    page  {url}/ui")
    console.print(f"     API  {url}/docs")
