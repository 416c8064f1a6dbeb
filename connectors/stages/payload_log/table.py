"""Requests and their answers as an Arrow table, a row per record and a column per input and output."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa

from cluster_serving.protocol.columns import Columns, of_record, split
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Array, Image, SparseTensor
from cluster_serving.protocol.results import Fields, decode_arrays, to_fields

_TYPES = {
    "time": pa.timestamp("ms", "UTC"),
    "uri": pa.utf8(),
    "record": pa.int32(),
    "version": pa.utf8(),
    "latency_ms": pa.float64(),
    "code": pa.utf8(),
    "error": pa.utf8(),
}
"""Columns that are neither inputs nor outputs."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A request with its answer.

    Attributes:
        entry: The request.
        fields: Fields of its result.
        latency_us: Microseconds from its arrival to its answer, of the oldest request in its batch.
        at: Time at which it was answered, in seconds of `time.monotonic`.
    """

    entry: Entry
    fields: Mapping[str, str | bytes]
    latency_us: int
    at: float

    @property
    def size(self) -> int:
        """Bytes that it keeps in memory."""
        return self.entry.size + sum(map(len, self.fields.values()))


def table_of(items: Sequence[Logged], version: str, without: Sequence[str] = ()) -> pa.Table:
    """Return the table of requests that a `version` has answered, without the columns that a pattern names.

    The columns are `time` (of arrival), `uri`, `record` (index in its request), `version`, `latency_ms`, `code` and
    `error` (null for a result), `input.<name>` and `output.<name>`. Tensors are lists, nested by dimension.
    """
    rows = [row for item in items for row in _rows(item, version)]
    names = dict.fromkeys(_TYPES) | dict.fromkeys(name for row in rows for name in row)
    kept = [name for name in names if not any(fnmatchcase(name, pattern) for pattern in without)]
    return pa.table({name: _column(name, [row.get(name) for row in rows]) for name in kept})


def _rows(item: Logged, version: str) -> Iterator[dict[str, Any]]:
    entry = item.entry
    inputs = _inputs(entry)
    for record, outcome in enumerate(_outcomes(to_fields(item.fields), entry.record_count)):
        error = outcome if isinstance(outcome, ServingError) else None
        yield {
            "time": entry.queued_ms,
            "uri": entry.uri.encode("utf8", "replace").decode(),
            "record": record,
            "version": version,
            "latency_ms": item.latency_us / 1000,
            "code": error and error.code,
            "error": error and error.message,
            **{f"input.{name}": value for name, value in (inputs[record] if inputs else {}).items()},
            **{f"output.{name}": value for name, value in ({} if error else outcome).items()},
        }


def _inputs(entry: Entry) -> Sequence[Any]:
    """Return the inputs of each record; empty if they cannot be read."""
    try:
        columns, inputs = entry.decode()
        if entry.records:
            of_record(columns, entry.record_count)
    except ServingError:
        return []
    return Columns(inputs) if entry.records else [inputs]


def _outcomes(fields: Fields, count: int) -> list[Any]:
    try:
        return split(fields, count, _outcome, lambda outputs: outputs)
    except ServingError as error:
        return [error] * count


def _outcome(fields: Fields) -> Any:
    if not fields.get(b"value"):
        # The pieces of an answer went to its client before.
        return {}
    try:
        return decode_arrays(fields)
    except ServingError as error:
        return error


def _column(name: str, values: Sequence[Any]) -> pa.Array:
    if name in _TYPES:
        return pa.array(values, _TYPES[name])
    given = [value for value in values if value is not None]
    try:
        if all(isinstance(value, np.ndarray) and value.ndim == given[0].ndim for value in given):
            places = iter(range(len(given)))
            return _nested(given).take(pa.array([None if value is None else next(places) for value in values]))
        return pa.array([_plain(value) for value in values])
    except pa.ArrowException:
        # Complex numbers, and values of several types.
        return pa.array([None if value is None else str(_plain(value)) for value in values])


def _nested(arrays: Sequence[Array]) -> pa.Array:
    """Return arrays of one number of dimensions as lists of lists, without an object of Python for each number."""
    values = pa.array(_flat(np.concatenate([array.ravel() for array in arrays])))
    for axis in reversed(range(arrays[0].ndim)):
        lengths = np.concatenate([np.full(math.prod(array.shape[:axis]), array.shape[axis]) for array in arrays])
        values = pa.ListArray.from_arrays(np.append(0, lengths.cumsum()).astype("i4"), values)
    return values


def _flat(values: Array) -> Any:
    if values.dtype == object:
        return [value if isinstance(value, str) else json.dumps(value) for value in values]
    return values.astype("f4") if values.dtype == np.float16 else values


def _plain(value: Any) -> Any:
    if isinstance(value, SparseTensor):
        return {name: np.asarray(getattr(value, name)).tolist() for name in ("indices", "values", "shape")}
    return value.data if isinstance(value, Image) else value.tolist() if isinstance(value, np.ndarray) else value
