"""Columns: an array for each input or output, with a row for each record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cluster_serving.job.batch import gather
from cluster_serving.job.predictor.record import NamedOutputs
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.slots import TensorSpec

Columns = dict[str, Array]
Outcomes = Sequence[NamedOutputs | ServingError]


@dataclass
class Scored:
    """Outputs of a batch of rows.

    Attributes:
        outputs: A column for each output. A row without outputs has zeros there, or None.
        errors: Error of each row that has no outputs.
    """

    outputs: Columns = field(default_factory=dict)
    errors: dict[int, ServingError] = field(default_factory=dict)


def gathered(columns: Mapping[str, Any], inputs: Sequence[TensorSpec] | None) -> Columns:
    """Return columns as arrays of equal length, with the record shape of their input where the sizes agree.

    Raises:
        InvalidInput: If there is no column, or their lengths differ.
    """
    shapes = {spec.name: spec.record_shape for spec in inputs or ()}
    arrays = {name: _shaped(_array(column), shapes.get(name)) for name, column in columns.items()}
    if len({len(array) for array in arrays.values()}) != 1:
        lengths = ", ".join(f"{name!r} {len(array)}" for name, array in arrays.items()) or "none"
        raise InvalidInput(f"the columns need one length, which is the number of records; they have: {lengths}")
    return arrays


def rows(columns: Columns) -> list[dict[str, Any]]:
    """Return the inputs of each record."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def pieces(columns: Columns, size: int) -> Iterator[Columns]:
    """Yield the columns in pieces of at most `size` rows."""
    for start in range(0, length(columns), size):
        yield piece(columns, start, start + size)


def piece(columns: Columns, start: int, end: int) -> Columns:
    """Return the rows from `start` to before `end`."""
    return {name: array[start:end] for name, array in columns.items()}


def length(columns: Columns) -> int:
    """Return the number of rows."""
    return len(next(iter(columns.values())))


def collected(outcomes: Outcomes) -> Scored:
    """Return the outcomes of single records as columns."""
    errors = {row: outcome for row, outcome in enumerate(outcomes) if isinstance(outcome, ServingError)}
    found = {row: outcome for row, outcome in enumerate(outcomes) if not isinstance(outcome, ServingError)}
    names = dict.fromkeys(name for outputs in found.values() for name in outputs)
    values = {name: {row: outputs[name] for row, outputs in found.items() if name in outputs} for name in names}
    return Scored({name: _column(column, len(outcomes)) for name, column in values.items()}, errors)


def joined(parts: Sequence[Scored], sizes: Sequence[int]) -> Scored:
    """Join the outputs of consecutive pieces of these sizes."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *sizes]).tolist()
    errors = {
        start + row: error for start, part in zip(starts, parts, strict=False) for row, error in part.errors.items()
    }
    names = dict.fromkeys(name for part in parts for name in part.outputs)
    return Scored({name: _joined([part.outputs.get(name) for part in parts], sizes) for name in names}, errors)


def _array(column: Any) -> Array:
    if isinstance(column, np.ndarray) and column.ndim and column.dtype.kind != "U":
        return column
    items = list(column)
    if items and isinstance(items[0], np.ndarray):
        return _stacked(items)
    try:
        array = np.asarray(items)
    except ValueError:
        return _stacked([_row(item) for item in items])
    return array if array.dtype.kind not in "OSU" else gather(items)


def _row(item: Any) -> Array:
    try:
        row = np.asarray(item)
    except ValueError:
        raise InvalidInput(f"a row has lists of different lengths: {str(item)[:100]}") from None
    return row.astype(object) if row.dtype.kind in "SU" else row


def _shaped(array: Array, shape: Sequence[int | None] | None) -> Array:
    if array.dtype == object and array.ndim == 1 and len(array) and isinstance(array[0], np.ndarray):
        array = _stacked(list(array))
    if shape is None or None in shape or array.dtype == object or array.shape[1:] == tuple(shape):
        return array
    fits = math.prod(array.shape[1:]) == math.prod(shape)  # type: ignore[arg-type]
    return array.reshape(len(array), *shape) if fits else array


def _stacked(items: Sequence[Any]) -> Array:
    """Return arrays as one if their shapes and dtypes are equal, else as objects."""
    if all(isinstance(item, np.ndarray) for item in items) and len({(i.shape, i.dtype) for i in items}) == 1:
        return np.stack(items)
    return gather(items)


def _column(values: Mapping[int, Any], count: int) -> Array:
    """Return the values of some of `count` rows as a column."""
    known = _stacked([*values.values()])
    if len(known) == count:
        return known
    column = _blank(known, count)
    column[list(values)] = known
    return column


def _joined(parts: Sequence[Array | None], sizes: Sequence[int]) -> Array:
    known = [part for part in parts if part is not None]
    filled = [_blank(known[0], size) if part is None else part for part, size in zip(parts, sizes, strict=True)]
    if len({(part.shape[1:], part.dtype) for part in filled}) > 1:
        return gather([row for part in filled for row in part])
    return np.concatenate(filled)


def _blank(like: Array, count: int) -> Array:
    return np.zeros((count, *like.shape[1:]), like.dtype) if like.dtype != object else np.full(count, None, object)
