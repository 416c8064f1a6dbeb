"""Columns of Arrow as inputs, by the table of conversions: the values of all rows, and the errors of some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cluster_serving.protocol.arrow import to_numpy
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.slots import TensorSpec
from cluster_serving.protocol.values.arrays import of_array, of_lists
from cluster_serving.protocol.values.number_lists import EXACT
from cluster_serving.protocol.values.table import Refused, Target, is_missing, takes_missing, target_of

_SCALARS = ((), (1,))


@dataclass
class Converted:
    """A column as an input.

    Attributes:
        values: A row for each row of the column: an array, or a list if rows differ in shape. Rows with an error are
            filled with anything.
        errors: Error of each row that has no place in the input.
    """

    values: Any
    errors: dict[int, InvalidInput] = field(default_factory=dict)


def of_column(name: str, column: Any, spec: TensorSpec, scalar: bool = False) -> Converted:
    """Convert a column.

    Args:
        name: Name of the column, for messages.
        column: Array of Arrow, chunked or not; or a sequence of Python's values.
        spec: The input.
        scalar: The column is one number of the vector that the input is.
    """
    if isinstance(column, (pa.ChunkedArray, pa.Array)):
        column = _plain(column)
        if column.null_count and _is_nested(column):
            return _without_null(name, column, spec, scalar)
        quick = _quick(column, spec)
        if quick is not None:
            return Converted(quick)
        column = _dates(column) if pa.types.is_temporal(column.type) else column.to_pylist()
    values = list(column)
    is_scalar = scalar or spec.record_shape in _SCALARS
    errors: dict[int, InvalidInput] = {}
    found: list[Any] = [None] * len(values)
    for row, value in enumerate(values):
        try:
            found[row] = _row(name, value, spec, is_scalar)
        except Refused as error:
            errors[row] = error.of(name)
        except ValueError as error:
            errors[row] = InvalidInput(f"input {name!r} is not a tensor: {error}")
    return Converted(_gathered(found, errors), errors)


def _is_nested(column: pa.Array) -> bool:
    return isinstance(column, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray, pa.FixedShapeTensorArray))


def _without_null(name: str, column: pa.Array, spec: TensorSpec, scalar: bool) -> Converted:
    """Convert the lists of a column, and refuse the missing ones."""
    rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    found = of_column(name, column.take(pa.array(rows)), spec, scalar)
    errors = {int(rows[row]): error for row, error in found.errors.items()}
    for row in sorted({*range(len(column))} - {*rows.tolist()}):
        errors[row] = Refused("a list of values").of(name)
    if not len(rows):
        return Converted(np.zeros(len(column)), errors)
    places = np.zeros(len(column), int)
    places[rows] = np.arange(len(rows))
    is_array = isinstance(found.values, np.ndarray)
    return Converted(found.values[places] if is_array else [found.values[at] for at in places], errors)


def _dates(column: pa.Array) -> list[Any]:
    """Return dates as Python's, without the nanoseconds that it does not have."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    elif pa.types.is_duration(column.type):
        column = column.cast(pa.duration("us"), safe=False)
    return column.to_pylist()  # type: ignore[no-any-return]


def _plain(column: Any) -> pa.Array:
    """Return a column as one array, with values in the place of codes."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_run_end_encoded(column.type):
        column = pc.run_end_decode(column)
    return column


def _quick(column: pa.Array, spec: TensorSpec) -> Any:
    """Return a column whose rows are all taken, without a look at each; None for any other."""
    target = target_of(spec)
    if target is None or not len(column):
        return _untyped(column)
    if target is Target.FLOAT and _is_text(column.type):
        column = _parsed(column)
        if column is None:
            return None
    if target in (Target.TEXT, Target.CODES):
        is_whole = _is_text(column.type) and (not column.null_count or takes_missing(spec))
        return column.to_numpy(zero_copy_only=False) if is_whole else None
    array = _numbers(column, target)
    if array is None:
        return None
    try:
        return of_array(array, spec)
    except Refused:
        return None


def _untyped(column: pa.Array) -> Any:
    """Return a column for an input of unknown dtype; None if a row is missing."""
    array = None if column.null_count else _numbers(column, None)
    if array is not None or column.null_count:
        return array
    if isinstance(column, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
        return [np.array(value) for value in column.to_pylist()]
    return column.to_numpy(zero_copy_only=False)


def _numbers(column: pa.Array, target: Target | None) -> Array | None:
    """Return numbers, or lists of them of one length, as an array; None for anything else.

    Missing numbers are NaN for a target of floats. A missing list is no number.
    """
    kind = column.type
    if isinstance(column, pa.FixedShapeTensorArray):
        return None if column.null_count else column.to_numpy_ndarray()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column, target)
    if pa.types.is_boolean(kind) or pa.types.is_floating(kind) or pa.types.is_integer(kind):
        if not column.null_count:
            return to_numpy(column)
        if target is Target.FLOAT and not pa.types.is_boolean(kind):
            return _with_holes(column)
    return None


def _lists(column: pa.Array, target: Target | None) -> Array | None:
    sizes = column.value_lengths() if not pa.types.is_fixed_size_list(column.type) else None
    if column.null_count or not len(column):
        return None
    size = column.type.list_size if sizes is None else int(sizes[0].as_py())
    if sizes is not None and not pc.all(pc.equal(sizes, size)).as_py():
        return None
    flat = _numbers(column.flatten(), target)
    return None if flat is None else flat.reshape(len(column), size, *flat.shape[1:])


def _with_holes(column: pa.Array) -> Array | None:
    """Return numbers with NaN for missing ones; None if a whole number may change."""
    if pa.types.is_integer(column.type):
        ends = pc.min_max(column).as_py()
        if any(end is not None and abs(end) > EXACT for end in ends.values()):
            return None
    found = column.to_numpy(zero_copy_only=False)
    return found if found.dtype.kind == "f" else found.astype("f8")  # type: ignore[no-any-return]


def _parsed(column: pa.Array) -> pa.Array | None:
    """Return the numbers of texts, if all of them are numbers or null."""
    try:
        texts = column.cast(pa.string()) if not pa.types.is_string(column.type) else column
        numbers = pc.utf8_trim_whitespace(texts).cast(pa.float64())
    except pa.ArrowException:
        return None
    # Infinity may be a number that is too large.
    return None if pc.any(pc.is_inf(numbers)).as_py() else numbers


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, _is_string_view))


def _is_string_view(kind: pa.DataType) -> bool:
    # pyarrow before version 16 has none.
    return str(kind) == "string_view"


def _row(name: str, value: Any, spec: TensorSpec, is_scalar: bool) -> Any:
    """Return the array of a row; the bytes of an image are left as they are."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if target_of(spec) is None:
        if is_missing(value):
            raise Refused("a value", value)
        return np.asarray(value)
    if isinstance(value, bytes) and target_of(spec) not in (Target.TEXT, Target.CODES):
        return value
    if isinstance(value, (list, tuple)):
        value = list(value)
        return (
            of_lists(name, value, spec, typed=True)
            if value
            else np.empty(0, object if spec.dtype == "str" else spec.dtype)
        )
    if is_missing(value) and not is_scalar and spec.shape is not None:
        raise Refused("a list of values", value)
    array = np.empty((), object)
    array[()] = value
    return of_array(array, spec)


def _gathered(found: Sequence[Any], errors: dict[int, InvalidInput]) -> Any:
    """Return rows as one array if their shapes are equal; rows with an error are filled with another row."""
    good = [value for row, value in enumerate(found) if row not in errors]
    if not good:
        return np.zeros(len(found))
    filled = [good[0] if row in errors else value for row, value in enumerate(found)]
    if all(isinstance(value, np.ndarray) for value in good) and len({value.shape for value in good}) == 1:
        return np.stack(filled)
    return filled
