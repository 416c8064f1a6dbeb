"""The controller of a job: the process on this machine that changes the job without a command."""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple, cast

from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.services import redis_server, state
from cluster_serving.launcher.services.process import locked, start, stop_recorded
from cluster_serving.launcher.services.supervisor import python_command
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.settings.addresses import Address

SERVICE = "controller"
"""Name of the service in the state folder; the controllers of all jobs of a Redis share a folder."""

_MODULE = "cluster_serving.launcher.rollout.controller"


class WatchedModels(NamedTuple):
    """Fingerprints of the models that a controller does not load again (`rollout.model_watch`).

    `problem` is the reason why the second one was refused.
    """

    served: str = ""
    refused: str = ""
    problem: str = ""


def tasks(config: Config) -> list[str]:
    """Return what a controller does for a job, by the keys of the configuration; empty without need of one."""
    chosen = {
        "watchModel": config.watch_model,
        f"autoscale from {config.autoscale_min} to {config.autoscale_max}": config.autoscale_max is not None,
        "modelControl": config.model_control,
    }
    return [task for task, is_chosen in chosen.items() if is_chosen]


def ensure(config: Config, config_path: Path, watched: WatchedModels | None = None) -> None:
    """Start the controller of a job if the configuration asks for one, in place of one that runs.

    `watched` is what the job has loaded; without it, what the last controller knew stays.

    Raises:
        LaunchError: If it does not start.
    """
    home, job = state.folder(SERVICE, config.redis_address), config.job_name
    if not tasks(config) and not home.exists():
        return
    with locked(home):
        stop_recorded(_record(home, job))
        if not tasks(config):
            return
        say(f"Starting the controller of job {job}: {', '.join(tasks(config))}")
        home.mkdir(mode=0o700, exist_ok=True)
        if watched is not None:
            remember(config, watched)
        with redis_server.connect(config) as client:
            seconds, microseconds = cast("tuple[int, int]", client.time())
            since = f"{seconds}.{microseconds:06}"
            command = python_command(_MODULE, str(config_path.absolute()), "--since", since)
            start(
                f"job {job} runs, but its controller",
                command,
                _record(home, job),
                log_of(config),
                config_path.absolute().parent,
                os.environ,
                lambda _: bool(client.hget(JobKeys(job).controller, "since") == since),
                config.start_timeout,
            )


def stop(redis: Address, job: str) -> bool:
    """Stop the controller of a job; a change that it has begun is undone. Return True if there was one."""
    home = state.folder(SERVICE, redis)
    if not home.is_dir():
        return False
    with locked(home):
        return stop_recorded(_record(home, job))


def stop_all(redis: Address | None, kept: Mapping[Address, Collection[str]]) -> list[str]:
    """Stop the controllers of all jobs of a Redis, or of all, but for `kept` jobs; return the names of the others."""
    stopped = []
    spared = {_record(state.folder(SERVICE, address), job) for address, jobs in kept.items() for job in jobs}
    homes = [state.folder(SERVICE, redis)] if redis else sorted(state.root().glob(f"{SERVICE}-*"))
    for home in filter(Path.is_dir, homes):
        with locked(home):
            records = (record for record in sorted(home.glob("*.json")) if record not in spared)
            stopped += [record.stem for record in records if stop_recorded(record)]
    return stopped


def remember(config: Config, watched: WatchedModels) -> None:
    """Keep what the controller of a job knows of its models, for the next one."""
    state.write(_watched(config), json.dumps(watched))


def recall(config: Config) -> WatchedModels | None:
    """Return what is kept; None if nothing is."""
    try:
        return WatchedModels(*json.loads(_watched(config).read_text("utf8")))
    except (OSError, ValueError, TypeError):
        return None


def log_of(config: Config) -> Path:
    """Return the log of a job's controller."""
    return state.folder(SERVICE, config.redis_address) / f"{config.job_name}.log"


def _record(home: Path, job: str) -> Path:
    return home / f"{job}.json"


def _watched(config: Config) -> Path:
    return state.folder(SERVICE, config.redis_address) / f"{config.job_name}.watched"
