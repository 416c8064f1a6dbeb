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
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cluster_serving.embed.answers import score
from cluster_serving.embed.output import FAILURES, Outcomes, Output
from cluster_serving.embed.task import Task
from cluster_serving.embed.unanswered import Unanswered
from cluster_serving.embed.units import Unit
from cluster_serving.job.models.formats import formats
from cluster_serving.protocol.host.background import give_way
from cluster_serving.protocol.host.parent import die_with_parent

_VALUE = re.compile(r"(: \S+\[\d+\])? is .*?; expected", re.DOTALL)
_LINE = re.compile(r"(cannot be read: [^:]*|and the header \d+):.*", re.DOTALL)
_MOST_KINDS = 3
"""Kinds of errors that the command names."""

_INTERRUPTED = 130
_BACKGROUND = 10
"""Niceness of the process that sends rows to a job."""


@dataclass
class _Tally:
    """Rows of scored units, and their errors by kind."""

    rows: int = 0
    wrong: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, output: Output, unit: Unit, rows: int, wrong: int) -> None:
        self.rows += rows
        self.wrong += wrong
        if wrong:
            self.kinds.update(map(_kind, output.errors(unit)))


def main() -> None:
    """Score all units that are not scored yet."""
    die_with_parent(signal.SIGKILL)
    # The launcher still looks at the model, and the processes of the pool inherit what is found here.
    formats()
    text = sys.stdin.read()
    if not text:
        # The launcher has ended with an error of its own.
        return
    task = Task.from_json(text)
    # Until here, the launcher has answered Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with _pool(task) as pool:
            output = Output(task.output)
            with output.held():
                try:
                    sys.exit(run(task, output, pool))
                except KeyboardInterrupt:
                    # The processes of the pool end with this one, and not with their units.
                    os._exit(_INTERRUPTED)
    except (*FAILURES, Unanswered) as error:
        sys.exit(f"error: {error}")
    except BrokenProcessPool:
        sys.exit("error: a process with the model has died, such as from a lack of memory; run fewer with --processes")


def _pool(task: Task) -> ProcessPoolExecutor | nullcontext[None]:
    """Return the processes that compute, or the one that sends rows to a job.

    On Linux they are forked, which saves the second that imports take in each: this process has no threads yet.
    """
    if task.flink:
        return nullcontext()
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    prepare = _prepare_lane if task.job else _prepare_process
    pool = ProcessPoolExecutor(1 if task.job else task.processes, context, prepare)
    # The first call forks all processes.
    pool.submit(os.getpid).result()
    return pool


def run(task: Task, output: Output, pool: Executor | None) -> int:
    """Score what is left in the processes of a pool, or through a job without one; return the exit code."""
    console, began = Console(stderr=True), time.monotonic()
    units = output.units(task.input)
    output.claim(task.identity)
    there, left = output.split(units)
    failed = 0
    # The exit code is that of all rows, also of those that an earlier command has scored.
    tally = _tally(output, there)
    before = tally.rows
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("", total=sum(unit.size for unit in left), rate="")
        for unit, outcome in _outcomes(task, output, left, pool):
            if isinstance(outcome, Exception):
                failed += 1
                console.print(f"error: {unit.place}: {_reason(outcome)}", markup=False, soft_wrap=True)
                continue
            tally.add(output, unit, *outcome)
            rate = f"{(tally.rows - before) / (time.monotonic() - began):,.0f} rows/s"
            progress.update(bar, advance=unit.size, rate=rate)
    output.tidy()
    if failed == len(units) and not task.flink:
        output.release()
    seconds = time.monotonic() - began
    rows = tally.rows - before
    console.print(
        f"{rows:,} rows in {seconds:.1f} s ({rows / seconds:,.0f} a second); {len(there)} of {len(units)} units were "
        f"there before, {failed} could not be scored. {tally.wrong:,} of {tally.rows:,} rows have an error. "
        f"Output: {task.output}",
        highlight=False,
        soft_wrap=True,
    )
    for kind, count in tally.kinds.most_common(_MOST_KINDS):
        console.print(f"{count:,} rows: {kind}", markup=False, highlight=False, soft_wrap=True)
    most = task.max_errors
    are_all_wrong = tally.rows > 0 and tally.wrong == tally.rows
    return int(failed > 0 or are_all_wrong or (most is not None and tally.wrong > most))


def _tally(output: Output, units: Sequence[Unit]) -> _Tally:
    tally = _Tally()
    for unit, outcome in output.outcomes(units):
        if not isinstance(outcome, Exception):
            tally.add(output, unit, *outcome)
    return tally


def _reason(error: Exception) -> str:
    """Return the message of an error on one line, with its type if the error is not an expected one."""
    text = " ".join(str(error).split())
    return text if isinstance(error, FAILURES) else f"{type(error).__name__}: {text}"


def _kind(error: str) -> str:
    """Return an error without the value or line that it names, which others of its kind have not."""
    return _LINE.sub(r"\1", _VALUE.sub(" is …; expected", error))


def _outcomes(task: Task, output: Output, units: Sequence[Unit], pool: Executor | None) -> Outcomes:
    if task.flink:
        from cluster_serving.embed.flink_score import watch

        return watch(task.flink, output, units)
    if pool is None:
        return ((unit, _outcome(partial(score, task, unit))) for unit in units)
    return _in_turn(task, units, pool) if task.job else _in_processes(task.for_units(len(units)), units, pool)


def _in_processes(task: Task, units: Sequence[Unit], pool: Executor) -> Outcomes:
    running = {pool.submit(score, task, unit): unit for unit in units}
    for done in as_completed(running):
        yield running[done], _outcome(done.result)


def _in_turn(task: Task, units: Sequence[Unit], pool: Executor) -> Outcomes:
    """Score one unit after another, so that a job that does not answer is asked no further ones."""
    for unit in units:
        yield unit, _outcome(pool.submit(score, task, unit).result)


def _outcome(result: Callable[[], tuple[int, int]]) -> tuple[int, int] | Exception:
    try:
        return result()
    except (BrokenProcessPool, Unanswered):
        raise
    except Exception as error:
        # One file never ends the others, whatever its reader or the model raises.
        return error


def _prepare_process() -> None:
    # Ctrl-C ends the main process, and these with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(signal.SIGKILL)


def _prepare_lane() -> None:
    """Let the requests of others come first in the job, which may be on this machine; in a session of its own."""
    _prepare_process()
    os.setsid()
    give_way(_BACKGROUND)


if __name__ == "__main__":
    main()
