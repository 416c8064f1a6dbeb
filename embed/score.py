"""Program of `cluster-serving-cli score`: a model over files, in processes of its own.

Usage: python -m cluster_serving.embed.score

Standard input has JSON with the fields of `Task`. The process ends with 1 if a unit could not be scored.
"""

from __future__ import annotations

import json
import multiprocessing
import posixpath
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from cluster_serving.embed.predictor import Predictor
from cluster_serving.embed.tables import ERROR, inputs_of, predict_table
from cluster_serving.embed.units import IMAGE, Unit, find, opened
from cluster_serving.job.options import JobOptions
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.parent import die_with_parent

_TASK = "_score.json"


@dataclass(frozen=True)
class Task:
    """What is to be scored.

    Attributes:
        options: `JobOptions` as JSON.
        sized: True if the configuration has `maxBatchSize`.
        inputs: Columns of each input, as for `predict_table`; empty for those of the same names.
        keep: Columns of the input that are written, too; None for all but those of the inputs.
        processes: Number of processes, each with a copy of the model.
    """

    options: str
    sized: bool
    input: str
    output: str
    inputs: Mapping[str, Sequence[str]]
    keep: Sequence[str] | None
    processes: int


def main() -> None:
    """Score all units that are not scored yet."""
    die_with_parent(signal.SIGKILL)
    task = Task(**json.load(sys.stdin))
    try:
        sys.exit(_run(task))
    except (ServingError, OSError, pa.ArrowException) as error:
        sys.exit(f"error: {error}")
    except BrokenProcessPool:
        sys.exit(
            "error: a process with the model has died, such as from a lack of memory; --processes says how many run"
        )


def _run(task: Task) -> int:
    console, began = Console(stderr=True), time.monotonic()
    system, folder = opened(task.output)
    system.create_dir(folder)
    _claim(task)
    # The output may be in a folder of the input.
    units = [unit for unit in find(task.input) if not unit.files[0].startswith(f"{folder}/")]
    left = [unit for unit in units if not system.get_file_info(posixpath.join(folder, unit.name)).is_file]
    rows = wrong = failed = 0
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    spawn = multiprocessing.get_context("spawn")
    with (
        Progress(*columns, console=console) as progress,
        ProcessPoolExecutor(task.processes, spawn, _prepare_process) as pool,
    ):
        bar = progress.add_task("", total=sum(unit.size for unit in left), rate="")
        running = {pool.submit(score, task, unit): unit for unit in left}
        for done in as_completed(running):
            unit = running[done]
            try:
                of_unit, wrong_of_unit = done.result()
            except (ServingError, OSError, pa.ArrowException) as error:
                failed += 1
                console.print(f"error: {unit.files[0]}: {error}", markup=False, soft_wrap=True)
                continue
            rows, wrong = rows + of_unit, wrong + wrong_of_unit
            rate = f"{rows / (time.monotonic() - began):,.0f} rows/s"
            progress.update(bar, advance=unit.size, rate=rate)
    seconds = time.monotonic() - began
    console.print(
        f"{rows:,} rows in {seconds:.1f} s ({rows / seconds:,.0f} a second), {wrong:,} of them with an error; "
        f"{len(units) - len(left)} of {len(units)} units were there before, {failed} failed. Output: {task.output}",
        highlight=False,
        soft_wrap=True,
    )
    return int(failed > 0)


def _claim(task: Task) -> None:
    """Write what a folder of output is of; raise `ServingError` if it is of something else."""
    system, folder = opened(task.output)
    text = json.dumps([task.options, task.input, task.inputs, task.keep]).encode()
    path = posixpath.join(folder, _TASK)
    if not system.get_file_info(path).is_file:
        with system.open_output_stream(path) as file:
            file.write(text)
        return
    with system.open_input_stream(path) as file:
        if file.read() != text:
            raise ServingError(
                f"{task.output} has the output of another input, model or configuration; choose another folder, or "
                "remove it"
            )


def _prepare_process() -> None:
    # Ctrl-C ends the main process, and these with it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent(signal.SIGKILL)


@cache
def _predictor(options: str, sized: bool) -> Predictor:
    return Predictor.of(JobOptions.from_json(options), sized)


def score(task: Task, unit: Unit) -> tuple[int, int]:
    """Score a unit into a file that is there as a whole or not at all; return its rows, and those with an error."""
    predictor = _predictor(task.options, task.sized)
    system, folder = opened(task.output)
    path = posixpath.join(folder, unit.name)
    aside = posixpath.join(posixpath.dirname(path), f".{posixpath.basename(path)}.part")
    system.create_dir(posixpath.dirname(path))
    rows = wrong = 0
    writer = None
    with system.open_output_stream(aside) as file:
        for batch in unit.batches():
            scored = _scored(task, predictor, batch)
            writer = writer or pq.ParquetWriter(file, scored.schema)
            writer.write_table(scored.cast(writer.schema))
            rows, wrong = rows + len(scored), wrong + len(scored) - scored[ERROR].null_count
        if writer is not None:
            writer.close()
    system.move(aside, path)
    return rows, wrong


def _scored(task: Task, predictor: Predictor, batch: pa.Table) -> pa.Table:
    inputs = dict(task.inputs)
    if not inputs and IMAGE in batch.column_names and len(predictor.inputs) == 1:
        inputs = {predictor.inputs[0].name: [IMAGE]}
    used = {name for names in inputs_of(predictor, batch.column_names, inputs).values() for name in names}
    outputs = predict_table(predictor, batch, inputs)
    keep = [name for name in batch.column_names if name not in used] if task.keep is None else task.keep
    kept = {name: batch[name] for name in keep if name not in outputs.column_names}
    return pa.table(kept | {name: outputs[name] for name in outputs.column_names})


if __name__ == "__main__":
    main()
