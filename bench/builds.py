"""Two installations of Cluster Serving, in turns: what commands, starts, idle jobs and a recovery cost.

Usage: python -m cluster_serving.bench.builds OTHER, where OTHER is the `bin` folder of an environment with another
version. Each figure is the ratio of this installation to the other one, pair by pair. The machine should do nothing
else.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from cluster_serving.bench.load.output import machine
from cluster_serving.bench.load.stats import ratio
from cluster_serving.bench.suite import models
from cluster_serving.bench.suite.stack import Stack, commands_cpu, free_port
from cluster_serving.client import InputQueue

Figures = dict[str, float]
"""Name of a figure → seconds, bytes, or a share of a core."""

_OURS = Path(sys.executable).parent
_FOLDER = Path(".bench")
_SETTLE_S, _IDLE_S, _RECOVERY_S = 20.0, 30.0, 45.0
"""Seconds until an installation is idle, for which it is watched then, and in which it recovers."""

_JOBS = 12
_REPEATS = 3
"""Runs of a command in a round, of which the median counts."""


class Build:
    """A Cluster Serving with nothing running, which is started with the commands of one installation."""

    def __init__(self, stack: Stack, model: Path) -> None:
        self.stack = stack
        self._model = model

    def start(self, job: str, *arguments: str) -> Figures:
        """Start a job beside those that run. Return the CPU seconds of all processes, and those that passed."""
        http = {"port": free_port(), "grpcPort": free_port()}
        return self._costs(lambda: self.stack.add(job, self._model, *arguments, http=http))

    def command(self, name: str, *arguments: str) -> float:
        """Run a command. Return its CPU seconds, with those of its children."""
        before = commands_cpu()
        self.stack.command(name, "job-1", *arguments)
        return commands_cpu() - before

    def _costs(self, action: Callable[[], object]) -> Figures:
        before, started = self.stack.cpu() + commands_cpu(), time.perf_counter()
        action()
        passed = time.perf_counter() - started
        return {"cpu_s": self.stack.cpu() + commands_cpu() - before, "s": passed}


def commands(build: Build) -> Figures:
    """Measure commands on a machine where one job runs."""
    build.start("job-1")

    def cost(*arguments: str) -> float:
        return median(build.command("cluster-serving-cli", *arguments) for _ in range(_REPEATS))

    figures = {" ".join(arguments): cost(*arguments) for arguments in (("--help",), ("status", "job-1"), ("list",))}
    figures |= {"stop": build.command("cluster-serving-stop", "job-1")}
    return {f"{name}, CPU s": seconds for name, seconds in figures.items()}


def start(build: Build) -> Figures:
    """Measure a first start from nothing, one on the Redis and the Flink that it has left running, and a later one."""
    cold = build.start("job-1")
    build.command("cluster-serving-stop", "job-1")
    # What the first start has left to do in the background is not part of the second one.
    time.sleep(_SETTLE_S)
    warm = build.start("job-1")
    build.command("cluster-serving-shutdown", "--yes")
    found = {"first": cold, "warm": warm, "later": build.start("job-1")}
    return {f"{name} start, {key}": value for name, costs in found.items() for key, value in costs.items()}


def idle(build: Build) -> Figures:
    """Measure an installation that nobody asks: one job with a front end, and twelve jobs."""

    def cores() -> float:
        time.sleep(_SETTLE_S)
        return build.stack.share(_IDLE_S)

    build.start("job-1", "--http")
    one = cores()
    memory = build.stack.memory()
    for number in range(2, _JOBS + 1):
        build.start(f"job-{number}")
    return {"1 job, cores": one, "1 job, MB": memory / 1e6, f"{_JOBS} jobs, cores": cores()}


def recovery(build: Build) -> Figures:
    """Measure the longest time without an answer when the only TaskManager is killed."""
    build.start("job-1")
    # What the start has left to do in the background is done.
    time.sleep(_SETTLE_S)
    answered = [time.perf_counter()]
    stopped = threading.Event()

    def ask() -> None:
        with InputQueue(url=build.stack.redis_url, name="job-1") as queue:
            while not stopped.is_set():
                queue.predict({"x": [0.0] * 64}, timeout=120)
                answered.append(time.perf_counter())

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        time.sleep(1)
        begin = len(answered)
        os.kill(build.stack.roles()["TaskManager"][0], signal.SIGKILL)
        time.sleep(_RECOVERY_S)
        stopped.set()
        asking.result()
    return {"no answer after a kill, s": max(after - before for before, after in pairwise(answered[begin - 1 :]))}


ROWS: dict[str, Callable[[Build], Figures]] = {
    "commands": commands,
    "start": start,
    "idle": idle,
    "recovery": recovery,
}


def run(
    other: Annotated[Path, typer.Argument(help="Folder bin of an environment with the other version.")],
    rows: Annotated[str, typer.Option(help=f"Rows to measure, separated by commas: {', '.join(ROWS)}.")] = "",
    rounds: Annotated[int, typer.Option(help="Number of times that each of the two is measured.")] = 5,
    file: Annotated[Path, typer.Option(help="File of results.")] = _FOLDER / "builds.json",
) -> None:
    """Measure both installations in turns; print each figure, and the ratio of this one to the other."""
    model = models.ensure(_FOLDER / "models", "mlp")
    results: dict[str, Any] = {"machine": machine()}
    for name in rows.split(",") if rows else ROWS:
        pairs = [[_measured(ROWS[name], programs, model) for programs in (_OURS, other)] for _ in range(rounds)]
        results[name] = {}
        for figure in pairs[0][0]:
            ours, theirs = ([figures[figure] for figures in column] for column in zip(*pairs, strict=True))
            results[name][figure] = {"ours": ours, "other": theirs, "ratio": ratio(ours, theirs)}
            print(f"{name}: {figure}: {median(ours):.3f}, other {median(theirs):.3f}, {_text(ratio(ours, theirs))}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(results, indent=1), "utf8")


def _measured(row: Callable[[Build], Figures], programs: Path, model: Path) -> Figures:
    with Stack(programs.absolute()) as stack:
        return row(Build(stack, model))


def _text(found: Mapping[str, float] | None) -> str:
    return "no ratio" if found is None else f"ratio {found['median']:.3f} ({found['low']:.3f} to {found['high']:.3f})"


if __name__ == "__main__":
    typer.run(run)
