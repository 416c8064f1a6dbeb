"""Answers of a model to the rows of a file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, islice

import pyarrow as pa
import pyarrow.compute as pc

from cluster_serving.embed.output import Output
from cluster_serving.embed.tables import ERROR, Model, inputs_of, predict_table
from cluster_serving.embed.task import Task
from cluster_serving.embed.units import IMAGE, ROWS, Unit
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.values.table import Target, target_of

Inputs = Mapping[str, Sequence[str]]

_NULLS = ["", "NA", "N/A", "NULL", "null", "None", "n/a", "#N/A", "<NA>"]
"""Texts of CSV that stand for a missing number, of those that pandas reads so."""


def answers(model: Model, unit: Unit, inputs: Inputs, keep: Sequence[str] | None) -> Iterator[pa.Table]:
    """Yield outputs, errors and the copied columns of the rows of a unit.

    A row that cannot be read has an error alone. Texts are read as numbers where the model takes numbers.

    Raises:
        InvalidInput: If a column of the inputs is missing.
    """
    needed = {name for spec in model.inputs for name in inputs.get(spec.name, [spec.name])}

    def wanted(names: Sequence[str]) -> list[str]:
        # If the model does not tell its inputs, or one is missing, all columns are needed, or named in the error.
        if keep is None or not needed or not needed <= {*names}:
            return [*names]
        return [name for name in names if name in needed or name in keep]

    for kind, batches in groupby(unit.batches(wanted), type):
        if kind is str:
            while errors := [f"{InvalidInput.code}: {text}" for text in islice(batches, ROWS)]:
                yield pa.table({ERROR: errors})
        else:
            yield from (_of_table(model, batch, inputs, keep, unit.is_text) for batch in batches)


def score(task: Task, unit: Unit) -> tuple[int, int]:
    """Score a unit; return its rows, and those with an error."""
    return Output(task.output).write(unit, answers(_model(task.to_json()), unit, task.inputs, task.keep))


@cache
def _model(task: str) -> Model:
    return Task.from_json(task).model()


def _of_table(model: Model, table: pa.Table, inputs: Inputs, keep: Sequence[str] | None, is_text: bool) -> pa.Table:
    if not inputs and IMAGE in table.column_names and len(model.inputs) == 1:
        inputs = {model.inputs[0].name: [IMAGE]}
    chosen = inputs_of(model, table.column_names, inputs)
    used = dict.fromkeys(name for names in chosen.values() for name in names)
    outputs = predict_table(model, _with_nulls(table, model, chosen) if is_text else table, chosen)
    kept = [name for name in table.column_names if name not in used] if keep is None else keep
    copied = [name for name in kept if name in table.column_names]
    if missing := [name for name in kept if name not in table.column_names]:
        raise InvalidInput(
            f"there is no column {missing[0]!r} to keep; the columns are {', '.join(table.column_names)}"
        )
    # An output of the same name as a column that is copied has another one, as the column stays what it is.
    named = {free_name(name, copied): column for name, column in _columns(outputs).items()}
    return pa.table({name: table[name] for name in copied} | named)


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name of an output beside copied columns: `model.label` if one of these is `label`."""
    return free_name(f"model.{name}", taken) if name in taken else name


def _with_nulls(table: pa.Table, model: Model, chosen: Mapping[str, Sequence[str]]) -> pa.Table:
    """Return a table of CSV with null for what stands for a missing value in the columns of the inputs."""
    columns = _columns(table)
    for spec in model.inputs:
        is_text = target_of(spec) in (Target.TEXT, Target.CODES, None)
        if is_text and not spec.column:
            continue
        for name in chosen.get(spec.name, ()):
            texts = columns[name]
            nulls = pa.array([""] if is_text else _NULLS)
            is_null = pc.is_in(pc.utf8_trim_whitespace(texts), nulls)
            if pc.any(is_null).as_py():
                # if_else of pyarrow 16 makes an invalid array of some slices.
                pairs = zip(texts.to_pylist(), is_null.to_pylist(), strict=True)
                columns[name] = pa.chunked_array(
                    [pa.array([None if null else text for text, null in pairs], pa.string())]
                )
    return pa.table(columns)


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))
