"""The commands that change a job: restart, update, scale, promote and rollback."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cluster_serving.launcher.command_log import log, warn
from cluster_serving.launcher.commands import report
from cluster_serving.launcher.commands.arguments import (
    CONFIG_PATH,
    ConfigPath,
    JobName,
    config_of,
    logged_config,
    named,
)
from cluster_serving.launcher.commands.running import by_command, start_front_end, start_job
from cluster_serving.launcher.config import repository
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import lifecycle
from cluster_serving.launcher.jobs.restart import restart as restart_job
from cluster_serving.launcher.rollout import change, model_change
from cluster_serving.launcher.rollout.change import Changed, NotBeside
from cluster_serving.launcher.services import front_end
from cluster_serving.launcher.shipping.inspection import shown, unknown
from cluster_serving.launcher.terminal import Progress, console
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.slots import SlotReport
from cluster_serving.settings.errors import SettingsError

_IN_PLACE = "Stop the job first, for a machine without the memory for two generations."
_MOST_SLOTS = 4096


def _share(of_what: str) -> str:
    return f"Keep both generations; the new one gets this percentage {of_what}."


def restart(
    config_path: ConfigPath = CONFIG_PATH,
    http: Annotated[bool, typer.Option("--http", help="Start the HTTP front end again, too.")] = False,
    in_place: Annotated[bool, typer.Option("--in-place", help=_IN_PLACE)] = False,
) -> None:
    """Let the job serve the model and the configuration as they are now, without a gap; start it if it does not run."""
    config = logged_config(config_path)
    front_end.check(config, config_path, http)
    if in_place or not lifecycle.is_running(config):
        start_job(config, config_path, restart_job)
    else:
        try:
            _update_beside(config, config_path)
        except NotBeside as error:
            warn(f"{error}; the job is stopped in between")
            start_job(config, config_path, restart_job)
    if http:
        start_front_end(config, config_path, again=True)


def update(
    job: JobName = None,
    config_path: ConfigPath = CONFIG_PATH,
    canary: Annotated[float | None, typer.Option(help=_share("of the requests"))] = None,
    shadow: Annotated[
        float | None, typer.Option(help=_share("of the requests, as copies whose answers are only compared"))
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help=_IN_PLACE)] = False,
) -> None:
    """Let a running job, or one of its models, serve model and configuration as they are now, without a gap."""
    config = logged_config(config_path)
    front_end.check(config, config_path, False)
    if job not in (None, config.job_name):
        if repository.find(shown(config)) and not (canary or shadow or in_place):
            _change_model(config, job or config.job_name, model_change.load)
            return
        if reason := unknown(config):
            raise LaunchError(reason)
        raise LaunchError(
            f"{config_path} is the configuration of job {config.job_name}, and not of {job}; name that of {job} with -c"
        )
    for name, share in (("canary", canary), ("shadow", shadow)):
        if share is not None and not 0 < share <= 100:
            raise SettingsError(f"--{name} is {share:g}; expected a percentage above 0 and up to 100")
    if canary and shadow:
        raise SettingsError("--canary and --shadow exclude each other: use one of them")
    if in_place and (canary or shadow):
        raise SettingsError("--in-place stops the old generation, which --canary and --shadow keep: use one of them")
    if in_place:
        start_job(config, config_path, restart_job)
        return
    try:
        _update_beside(config, config_path, canary or 0.0, shadow or 0.0)
    except NotBeside as error:
        raise LaunchError(f"{error}; --in-place stops the job in between") from None


def scale(
    words: Annotated[list[str], typer.Argument(metavar="[JOB] SLOTS", help="jobName, and the number of slots.")],
    config_path: ConfigPath = CONFIG_PATH,
) -> None:
    """Change the number of task slots of a running job, without a gap if it serves one model."""
    *names, number = words
    if len(names) > 1 or not number.isdecimal() or not 1 <= int(number) <= _MOST_SLOTS:
        raise SettingsError(
            f"{' '.join(words)!r} is not [JOB] SLOTS; expected a number from 1 to {_MOST_SLOTS}, such as 4, or a job "
            "and a number, such as digits 4"
        )
    _change(names[0] if names else None, config_path, change.scale, int(number))


def promote(job: JobName = None, config_path: ConfigPath = CONFIG_PATH) -> None:
    """Let the canary, or the shadow, of a job serve all requests."""
    _change(job, config_path, change.promote)


def rollback(job: JobName = None, config_path: ConfigPath = CONFIG_PATH) -> None:
    """End the canary or shadow of a job; without one, serve again what it, or one of its models, served before."""
    config = config_of(config_path)
    if job and model_change.serves(config, job):
        _change_model(config, job, model_change.rollback)
        return
    _change(job, config_path, change.rollback)


def _change_model(config: Config, name: str, make: Callable[[Config, str], SlotReport | None]) -> None:
    with Progress():
        try:
            found = make(config, name)
        except ServingError as error:
            raise LaunchError(f"the model {name} is not changed: {error}") from None
    console.print(f"The model {name} is removed." if found is None else f"{name}: {found.summary}")


def _update_beside(config: Config, config_path: Path, canary: float = 0.0, shadow: float = 0.0) -> None:
    with Progress(), by_command(config, config_path):
        changed = change.update(config, canary, shadow)
    _show(changed, config_path)


def _change(job: str | None, config_path: Path, make: Callable[..., Changed | None], *given: object) -> None:
    config = config_of(config_path)
    name = named(job, config, config_path)
    with Progress():
        changed = make(config, name, *given)
    if changed is None:
        console.print("The canary or shadow has ended; the job serves as before.")
        return
    _show(changed, config_path)


def _show(changed: Changed, config_path: Path) -> None:
    shown = report.started(changed.started, config_path)
    log.info(shown.plain)
    console.print(shown)
    console.print(report.changed(changed))
