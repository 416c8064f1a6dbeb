"""The commands that show jobs: `cluster-serving-cli list`, `status`, `metrics`, `events`, `logs` and `doctor`."""

import json
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

import typer

from cluster_serving.launcher.command_log import warn
from cluster_serving.launcher.commands import report, task_logs
from cluster_serving.launcher.commands.arguments import CONFIG_PATH, AsJson, ConfigPath, JobName, config_of, named
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import job_status
from cluster_serving.launcher.jobs.store import JobStore, opened
from cluster_serving.launcher.services import controller, flink_cluster, front_end, redis_server, state
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.launcher.services.process import Process
from cluster_serving.launcher.targets import target_of
from cluster_serving.launcher.terminal import console, printable
from cluster_serving.protocol.figures.exposition import exposition

Most = Annotated[int, typer.Option("-n", "--number", min=1, help="Most events.")]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Go on with new lines, until Ctrl-C.")]
Errors = Annotated[bool, typer.Option("--errors", help="Only warnings and errors, with their stack traces.")]

_NOT_RUNNING = 3
"""Exit code of `status`, as of systemctl, for a job that is known and does not run."""

_LOOK_S, _WATCH_S = 1.0, 2.0
"""Seconds for which `status` looks at a running job, for its rate; and with `--watch`, each time."""


def list_(config_path: ConfigPath = CONFIG_PATH, as_json: AsJson = False) -> None:
    """List the jobs that run, and those that have stopped or failed, with their last errors."""
    config = config_of(config_path)
    _warn_of_killed(config)
    with target_of(config).flink() as flink:
        jobs = job_status.read_all(config, flink)
        where = flink.where
    if any(job.answered is None for job in jobs):
        _warn_of_silent(config)
    if as_json:
        print(json.dumps([job.summary() for job in jobs], indent=2))
    elif jobs:
        console.print(report.listed(jobs))
    else:
        console.print(f"No job is running on {where}.")


def _warn_of_silent(config: Config) -> None:
    try:
        redis_server.check(config)
    except LaunchError as error:
        warn(f"only what Flink says is known: {error}")


def status(
    job: JobName = None,
    config_path: ConfigPath = CONFIG_PATH,
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every two seconds; with --json, a line each.")
    ] = False,
) -> None:
    """Show the state, the slots, the model, the rate, the queue, failures and the last error of a job.

    The exit code is 0 if the job runs, 3 if it does not, and 1 if nothing is known of it.
    """
    config = config_of(config_path)
    _warn_of_killed(config)
    name = named(job, config, config_path)
    with target_of(config).flink() as flink, opened(config, name) as store:
        redis_server.check(config)
        redis_server.warn_of_holes(config)
        for found in job_status.watched(config, flink, store, name, _WATCH_S if watch else _LOOK_S):
            queued = job_status.queue(store)
            if watch and console.is_interactive and not as_json:
                console.clear()
            if as_json:
                print(json.dumps(report.details(found, queued), indent=None if watch else 2), flush=True)
            else:
                console.print(report.status(found, queued))
            if not watch:
                break
    if not found.runs:
        raise typer.Exit(_NOT_RUNNING)


def metrics(job: JobName = None, config_path: ConfigPath = CONFIG_PATH) -> None:
    """Print the metrics of a job in the text format of Prometheus, as the front end's /metrics has them."""
    config = config_of(config_path)
    redis_server.check(config)
    with opened(config, named(job, config, config_path)) as store:
        _check_known(store)
        print(exposition([store.reading()]), end="")


def events(
    job: JobName = None, config_path: ConfigPath = CONFIG_PATH, most: Most = 50, as_json: AsJson = False
) -> None:
    """List what has happened to a job: starts, changes, failures, and who caused them; the oldest first."""
    config = config_of(config_path)
    redis_server.check(config)
    with opened(config, named(job, config, config_path)) as store:
        found = store.events(most)
        if not found:
            _check_known(store)
    if as_json:
        print(json.dumps([asdict(event) for event in found], indent=2))
        return
    for event in found:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
        console.print(f"{when}  {printable(event.what)}  by {printable(event.by)}")


def _check_known(store: JobStore) -> None:
    if not store.is_known():
        raise LaunchError(f"Redis knows no job {store.job}; cluster-serving-cli list shows the jobs")


def logs(config_path: ConfigPath = CONFIG_PATH, follow: Follow = False, errors: Errors = False) -> None:
    """Print the lines that the TaskManagers have logged, each with its TaskManager; those of all jobs there."""
    with target_of(config_of(config_path)).flink() as flink, suppress(KeyboardInterrupt):
        if not isinstance(flink, FlinkRest):
            raise LaunchError(f"{flink.where} keeps the logs: use its own command (kubectl logs, yarn logs)")
        for host, line in task_logs.lines(flink, follow, errors):
            print(f"{host}  {printable(line.expandtabs(4))}", flush=follow)


def doctor_(config_path: ConfigPath = CONFIG_PATH, as_json: AsJson = False) -> None:
    """Check what a job needs: Python, Java, Redis, clock, Flink, model, memory, disk and ports.

    Each line says what to do. The exit code is 1 if a check has failed.
    """
    # Imported here: the other commands examine nothing.
    from cluster_serving.launcher.commands import doctor

    styles = {doctor.OK: "green", doctor.WARNING: "yellow", doctor.FAILED: "red"}
    found = list(doctor.examine(config_of(config_path), config_path))
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
    else:
        for each in found:
            console.print(f"{each.topic:>9}  {each.state:<7}  {printable(each.text)}", style=styles[each.state])
    if any(each.state == doctor.FAILED for each in found):
        raise typer.Exit(1)


def _warn_of_killed(config: Config) -> None:
    if killed := unsupervised(config):
        with_http = any(name.startswith(f"{front_end.SERVICE}-") for name in killed)
        warn(
            f"{', '.join(killed)}: the supervisors were killed, and the process ended with them; "
            f"cluster-serving-restart{' --http' if with_http else ''} starts it again"
        )


def unsupervised(config: Config) -> list[str]:
    """Return the processes that were started here for a configuration and that nothing would start again."""
    homes = [redis_server.folder(config.redis_address), flink_cluster.folder(config.flink_address)]
    homes += [state.folder(controller.SERVICE, config.redis_address)]
    homes += front_end.folders(config.redis_address)
    # Commands remove the record of a process that they stop.
    records = (record for home in homes for record in sorted(home.glob("*.json")))
    return [f"{record.parent.name}/{record.stem}" for record in records if Process.read(record) is None]
