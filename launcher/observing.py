"""The commands that show what happens inside: `cluster-serving-cli metrics`, `events`, `logs` and `doctor`."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cluster_serving.launcher import doctor, task_logs
from cluster_serving.launcher.arguments import CONFIG_PATH, AsJson, ConfigPath, JobName
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.store import opened
from cluster_serving.launcher.services import redis_server
from cluster_serving.launcher.services.flink_rest import FlinkRest
from cluster_serving.launcher.targets import target_of
from cluster_serving.launcher.terminal import console, printable
from cluster_serving.protocol.exposition import exposition

Most = Annotated[int, typer.Option("-n", "--number", min=1, help="Most events.")]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Go on with new lines, until Ctrl-C.")]
Errors = Annotated[bool, typer.Option("--errors", help="Only warnings and errors, with their stack traces.")]

_STYLES = {doctor.OK: "green", doctor.WARNING: "yellow", doctor.FAILED: "red"}

Read = Callable[[Path], Config]
Named = Callable[["str | None", Config, Path], str]


def commands(read: Read, named: Named) -> dict[str, Callable[..., None]]:
    """Return the commands by name; `named` returns the job that a command means."""

    def metrics(job: JobName = None, config_path: ConfigPath = CONFIG_PATH) -> None:
        """Print the metrics of a job in the text format of Prometheus, as the front end's /metrics has them."""
        config = read(config_path)
        redis_server.check(config)
        with opened(config, named(job, config, config_path)) as store:
            print(exposition([store.reading()]), end="")

    def events(
        job: JobName = None, config_path: ConfigPath = CONFIG_PATH, most: Most = 50, as_json: AsJson = False
    ) -> None:
        """List what has happened to a job: starts, changes, failures, and who caused them; the oldest first."""
        config = read(config_path)
        redis_server.check(config)
        with opened(config, named(job, config, config_path)) as store:
            found = store.events(most)
        if as_json:
            print(json.dumps([asdict(event) for event in found], indent=2))
            return
        for event in found:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
            console.print(f"{when}  {printable(event.what)}  by {printable(event.by)}")

    def logs(config_path: ConfigPath = CONFIG_PATH, follow: Follow = False, errors: Errors = False) -> None:
        """Print the lines that the TaskManagers have logged, each with its TaskManager; those of all jobs there."""
        with target_of(read(config_path)).flink() as flink, suppress(KeyboardInterrupt):
            if not isinstance(flink, FlinkRest):
                raise LaunchError(f"{flink.where} keeps the logs: use its own command (kubectl logs, yarn logs)")
            for host, line in task_logs.lines(flink, follow, errors):
                print(f"{host}  {printable(line)}", flush=follow)

    def doctor_(config_path: ConfigPath = CONFIG_PATH, as_json: AsJson = False) -> None:
        """Check what a job needs: Python, Java, Redis, clock, Flink, model, memory, disk and ports.

        Each line says what to do. The exit code is 1 if a check has failed.
        """
        found = list(doctor.examine(read(config_path), config_path))
        if as_json:
            print(json.dumps([asdict(each) for each in found], indent=2))
        else:
            for each in found:
                console.print(f"{each.topic:>9}  {each.state:<7}  {printable(each.text)}", style=_STYLES[each.state])
        if any(each.state == doctor.FAILED for each in found):
            raise typer.Exit(1)

    return {"metrics": metrics, "events": events, "logs": logs, "doctor": doctor_}
