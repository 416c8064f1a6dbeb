"""Answers of a model to the rows of a file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cluster_serving.embed.json_lines import text_of
from cluster_serving.embed.output import Output
from cluster_serving.embed.tables import ERROR, Model, inputs_of, predict_columns
from cluster_serving.embed.task import Task
from cluster_serving.embed.units import IMAGE, ROWS, Columns, Unit
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
        if keep is None or not needed or not {*needed, *keep} <= {*names}:
            return [*names]
        return [name for name in names if name in needed or name in keep]

    for is_error, batches in groupby(unit.batches(wanted), lambda batch: isinstance(batch, str)):
        if is_error:
            while errors := [f"{InvalidInput.code}: {text}" for text in islice(batches, ROWS)]:
                yield pa.table({ERROR: errors})
        else:
            for batch in batches:
                if isinstance(batch, dict):
                    yield _of_columns(model, batch, inputs, keep, unit.is_text)


def score(task: Task, unit: Unit) -> tuple[int, int]:
    """Score a unit; return its rows, and those with an error."""
    return Output(task.output).write(unit, answers(_model(task.to_json()), unit, task.inputs, task.keep))


@cache
def _model(task: str) -> Model:
    return Task.from_json(task).model()


def _of_columns(model: Model, given: Columns, inputs: Inputs, keep: Sequence[str] | None, is_text: bool) -> pa.Table:
    if not inputs and IMAGE in given and len(model.inputs) == 1:
        inputs = {model.inputs[0].name: [IMAGE]}
    chosen = inputs_of(model, [*given], inputs)
    used = {name for names in chosen.values() for name in names}
    outputs = predict_columns(model, _with_nulls(given, model, chosen) if is_text else given, chosen)
    kept = [name for name in given if name not in used] if keep is None else keep
    if missing := [name for name in kept if name not in given]:
        raise InvalidInput(f"there is no column {missing[0]!r} to keep; the columns are {', '.join(given)}")
    copied = {name: _copied(given[name]) for name in kept}
    # An output of the same name as a column that is copied has another one, as the column stays what it is.
    named = zip(outputs.column_names, outputs.columns, strict=True)
    return pa.table(copied | {free_name(name, copied): column for name, column in named})


def _copied(column: Any) -> Any:
    return pa.array(map(text_of, column), pa.string()) if isinstance(column, list) else column


def free_name(name: str, taken: Collection[str]) -> str:
    """Return the name of an output beside copied columns: `model.label` if one of these is `label`."""
    return free_name(f"model.{name}", taken) if name in taken else name


def _with_nulls(given: Columns, model: Model, chosen: Mapping[str, Sequence[str]]) -> Columns:
    """Return columns of CSV with null for what stands for a missing value in the columns of the inputs."""
    columns = {**given}
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
                columns[name] = pa.array([None if null else text for text, null in pairs], pa.string())
    return columns
