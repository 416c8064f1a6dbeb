"""Program of `cluster-serving-cli score`: a model over files.

Usage: python -m cluster_serving.embed.score

Standard input has JSON with the fields of `Task`. The process ends with 1 if a unit could not be scored, if all rows
have errors, or if more than `max_errors` have.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cluster_serving.embed.answers import score
from cluster_serving.embed.lane import Unanswered
from cluster_serving.embed.output import FAILURES, Outcomes, Output
from cluster_serving.embed.task import Task
from cluster_serving.embed.units import Unit
from cluster_serving.protocol.parent import die_with_parent

_VALUE = re.compile(r"(: \S+\[\d+\])? is .*?; expected", re.DOTALL)
_MOST_KINDS = 3
"""Kinds of errors that the command names."""

_BACKGROUND = 10
"""Niceness of this program beside a job."""


def main() -> None:
    """Score all units that are not scored yet."""
    die_with_parent(signal.SIGKILL)
    task = Task.from_json(sys.stdin.read())
    try:
        output = Output(task.output)
        with output.held():
            sys.exit(_run(task, output))
    except (*FAILURES, Unanswered) as error:
        sys.exit(f"error: {error}")
    except BrokenProcessPool:
        sys.exit("error: a process with the model has died, such as from a lack of memory; run fewer with --processes")


def _run(task: Task, output: Output) -> int:
    console, began = Console(stderr=True), time.monotonic()
    output.claim(task.identity)
    units = output.units(task.input)
    left = output.left(units)
    rows = wrong = failed = 0
    kinds = Counter[str]()
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("", total=sum(unit.size for unit in left), rate="")
        for unit, outcome in _outcomes(task, output, left):
            if isinstance(outcome, Exception):
                failed += 1
                console.print(f"error: {unit.files[0]}: {outcome}", markup=False, soft_wrap=True)
                continue
            rows, wrong = rows + outcome[0], wrong + outcome[1]
            if outcome[1]:
                kinds.update(map(_kind, output.errors(unit)))
            rate = f"{rows / (time.monotonic() - began):,.0f} rows/s"
            progress.update(bar, advance=unit.size, rate=rate)
    output.tidy()
    if failed == len(units) and not task.flink:
        output.release()
    seconds = time.monotonic() - began
    console.print(
        f"{rows:,} rows in {seconds:.1f} s ({rows / seconds:,.0f} a second), {wrong:,} of them with an error; "
        f"{len(units) - len(left)} of {len(units)} units were there before, {failed} could not be scored. "
        f"Output: {task.output}",
        highlight=False,
        soft_wrap=True,
    )
    for kind, count in kinds.most_common(_MOST_KINDS):
        console.print(f"{count:,} rows: {kind}", markup=False, highlight=False, soft_wrap=True)
    most = task.max_errors
    return int(failed > 0 or (rows > 0 and wrong == rows) or (most is not None and wrong > most))


def _kind(error: str) -> str:
    """Return an error without the value that it names, which others of its kind have not."""
    return _VALUE.sub(" is …; expected", error)


def _outcomes(task: Task, output: Output, units: Sequence[Unit]) -> Outcomes:
    if task.flink:
        from cluster_serving.embed.flink_score import watch

        return watch(task.flink, output, units)
    return _through_job(task, units) if task.job else _in_processes(task, units)


def _in_processes(task: Task, units: Sequence[Unit]) -> Outcomes:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(task.processes, spawn, _prepare_process) as pool:
        running = {pool.submit(score, task, unit): unit for unit in units}
        for done in as_completed(running):
            yield running[done], _outcome(done.result)


def _through_job(task: Task, units: Sequence[Unit]) -> Outcomes:
    # The job may be on this machine, where requests of others come first, too.
    os.nice(_BACKGROUND)
    for unit in units:
        yield unit, _outcome(partial(score, task, unit))


def _outcome(result: Callable[[], tuple[int, int]]) -> tuple[int, int] | Exception:
    try:
        return result()
    except FAILURES as error:
        return error


def _prepare_process() -> None:
    # Ctrl-C ends the main process, and these with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(signal.SIGKILL)


if __name__ == "__main__":
    main()
