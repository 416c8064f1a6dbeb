"""Answers of a model to the rows of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby, islice

import numpy as np
import pyarrow as pa

from cluster_serving.embed.output import Output
from cluster_serving.embed.tables import ERROR, Model, inputs_of, predict_table
from cluster_serving.embed.task import Task
from cluster_serving.embed.units import IMAGE, ROWS, Unit
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.slots import TensorSpec

Inputs = Mapping[str, Sequence[str]]


def answers(model: Model, unit: Unit, inputs: Inputs, keep: Sequence[str] | None) -> Iterator[pa.Table]:
    """Yield outputs, errors and the copied columns of the rows of a unit.

    A row that cannot be read has an error alone. Texts are read as numbers where the model takes numbers.

    Raises:
        InvalidInput: If a column of the inputs is missing.
    """
    texts = [name for spec in model.inputs for name in inputs.get(spec.name, [spec.name])]
    for kind, batches in groupby(unit.batches(texts), type):
        if kind is str:
            while errors := [f"{InvalidInput.code}: {text}" for text in islice(batches, ROWS)]:
                yield pa.table({ERROR: errors})
        else:
            yield from (_of_table(model, batch, inputs, keep) for batch in batches)


def score(task: Task, unit: Unit) -> tuple[int, int]:
    """Score a unit; return its rows, and those with an error."""
    return Output(task.output).write(unit, answers(_model(task.to_json()), unit, task.inputs, task.keep))


@cache
def _model(task: str) -> Model:
    return Task.from_json(task).model()


def _of_table(model: Model, table: pa.Table, inputs: Inputs, keep: Sequence[str] | None) -> pa.Table:
    if not inputs and IMAGE in table.column_names and len(model.inputs) == 1:
        inputs = {model.inputs[0].name: [IMAGE]}
    chosen = inputs_of(model, table.column_names, inputs)
    used = dict.fromkeys(name for names in chosen.values() for name in names)
    read, bad = _numbers(table, {name: spec for spec in model.inputs for name in chosen.get(spec.name, ())})
    outputs = predict_table(model, read, chosen)
    if bad:
        errors = [bad.get(row, error) for row, error in enumerate(outputs[ERROR].to_pylist())]
        outputs = outputs.set_column(outputs.column_names.index(ERROR), ERROR, pa.array(errors, pa.string()))
    kept = [name for name in table.column_names if name not in used] if keep is None else keep
    return pa.table({name: table[name] for name in kept if name not in outputs.column_names} | _columns(outputs))


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _numbers(table: pa.Table, specs: Mapping[str, TensorSpec]) -> tuple[pa.Table, dict[int, str]]:
    """Return a table with numbers in place of texts, and the error of each row with another text, which is null."""
    columns, bad = _columns(table), dict[int, str]()
    for name, spec in specs.items():
        if pa.types.is_string(columns[name].type) and spec.numpy_dtype is not None:
            texts, columns[name] = columns[name], _cast(columns[name], spec.numpy_dtype.kind)
            for row in np.flatnonzero(columns[name].is_null().to_numpy()).tolist():
                if text := (texts[row].as_py() or "").strip():
                    bad.setdefault(row, f"{InvalidInput.code}: the column {name!r} has no number: {text[:40]!r}")
    return pa.table(columns), bad


def _cast(texts: pa.ChunkedArray, kind: str) -> pa.ChunkedArray:
    wanted = pa.bool_() if kind == "b" else pa.int64() if kind in "iu" else pa.float64()
    try:
        return texts.cast(wanted)
    except pa.ArrowInvalid:
        return pa.chunked_array([[_number(text, wanted) for text in texts.to_pylist()]], wanted)


def _number(text: str | None, wanted: pa.DataType) -> object:
    try:
        return pa.scalar(text and text.strip()).cast(wanted).as_py()
    except pa.ArrowInvalid:
        return None
