"""Arguments that several commands take: the configuration file, and the job."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from cluster_serving.launcher.command_log import keep_in, log, warn
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.config.values import job_name
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.targets import target_of
from cluster_serving.settings.errors import SettingsError
from cluster_serving.settings.model import expected, keys

CONFIG_PATH = Path(config_file.FILE_NAME)
"""Default of `ConfigPath`."""

ConfigPath = Annotated[
    Path, typer.Option("-c", "--config-path", "--config_path", help="The configuration file.", show_default=True)
]
JobName = Annotated[
    str | None, typer.Argument(help="jobName; default: that of the configuration file, or the only job.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def config_of(path: Path) -> Config:
    """Return the file's configuration, or the defaults if no file was named and none is there."""
    return config_file.read(path, warn, missing_ok=path == CONFIG_PATH)


def logged_config(path: Path) -> Config:
    """Return the file's configuration; what the command says from now on is kept in the log beside the file."""
    if path.is_file():
        keep_in(path.absolute().parent)
        log.info(shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))
    return config_file.read(path, warn)


def named(job: str | None, config: Config, path: Path) -> str:
    """Return the job that a command names, or the one that it means without a name."""
    if job is None:
        return default_job(config, path)
    try:
        return job_name(job)
    except ValueError:
        raise SettingsError(f"{job!r} cannot be a jobName; expected {expected(keys(Config)['jobName'])}") from None


def default_job(config: Config, path: Path) -> str:
    """Return the job of the configuration file, or the only job that runs if there is no file."""
    if path.exists():
        return config.job_name
    with target_of(config).flink() as flink:
        jobs = flink.jobs()
    if len(jobs) != 1:
        names = ", ".join(job.name for job in jobs) or "none"
        raise LaunchError(f"the command names no job, and there is no {path}; name one of the jobs that run: {names}")
    return jobs[0].name
