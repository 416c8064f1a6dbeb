"""Requests of several records in one stream entry: each input, and each output, has the records in one column.

An entry with the field `records` has that many records, whose inputs are stacked along a new first dimension. Its
result has the outputs stacked alike. If the records differ in their outputs, or some have failed, it has the result of
each record instead (`EACH`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from cluster_serving.protocol import tensors
from cluster_serving.protocol.entry import MOST_RECORDS, NATIVE
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.inputs import Array, Input
from cluster_serving.protocol.results import Fields, Outputs, decode_arrays, decode_outputs, to_fields
from cluster_serving.protocol.signature import Signature

T = TypeVar("T")

EACH = "each"
"""Field of a result that has the fields of each record's own result: the number of records that have failed."""

MOST_BYTES = 1 << 14
"""Most bytes of the inputs of a record that shares an entry: larger ones gain little, and an event loop copies them."""


def chunks(records: Sequence[tensors.Inputs], most: int) -> list[tuple[list[int], tensors.Inputs]]:
    """Divide records into entries: indices of the records of each, and their inputs, stacked if there are several.

    Records share an entry if their inputs have the same names, types and shapes, are small, and neither images nor
    sparse.
    """
    if most < 2 or len(records) < 2:
        return [([index], record) for index, record in enumerate(records)]
    groups: dict[Hashable, list[int]] = {}
    arrays: dict[int, Mapping[str, Array]] = {}
    found: list[tuple[list[int], tensors.Inputs]] = []
    for index, record in enumerate(records):
        decoded = _arrays(record)
        if decoded is None:
            found.append(([index], record))
        else:
            arrays[index] = decoded
            key = tuple([(name, array.dtype.str, array.shape) for name, array in decoded.items()])
            groups.setdefault(key, []).append(index)
    length = min(most, MOST_RECORDS)
    for members in groups.values():
        for start in range(0, len(members), length):
            part = members[start : start + length]
            if len(part) == 1:
                found.append((part, records[part[0]]))
            else:
                names = arrays[part[0]]
                found.append((part, {name: np.stack([arrays[index][name] for index in part]) for name in names}))
    return found


def _arrays(record: tensors.Inputs) -> Mapping[str, Array] | None:
    """Return the arrays of a record that can share an entry, else None."""
    if isinstance(record, tensors.Encoded):
        # Names and types take some of the bytes.
        if len(record.data) > 2 * MOST_BYTES:
            return None
        record = tensors.decode(record.data)[1]
    inputs: Mapping[str, Any] = record
    size = 0
    for value in inputs.values():
        if not isinstance(value, np.ndarray):
            return None
        size += sum(map(len, value.flat)) if value.dtype == object else value.nbytes
    return inputs if size <= MOST_BYTES else None


def parts(columns: Signature, inputs: Mapping[str, Input], count: int) -> tuple[Signature, list[dict[str, Input]]]:
    """Return the signature and the inputs of each of the `count` records of an entry.

    Raises:
        InvalidInput: If an input is not that many records in a column.
    """
    for column in columns:
        if column.kind not in ("tensor", "string") or column.shape[:1] != (count,):
            raise InvalidInput(
                f"input {column.name!r} is a {column.kind} of shape {list(column.shape)}; expected a tensor or texts "
                f"of {count} records in the first dimension"
            )
    own = tuple([column._replace(shape=column.shape[1:]) for column in columns])
    values: Mapping[str, Any] = inputs
    return own, [{name: array[index, ...] for name, array in values.items()} for index in range(count)]


def joined(results: Sequence[Mapping[str, str | bytes]]) -> dict[str, str | bytes]:
    """Return the fields of the result of an entry, from those of the results of its records."""
    flat = [[part for pair in to_fields(fields).items() for part in pair] for fields in results]
    lengths = np.array([len(part) for row in flat for part in row], "u4")
    counts = np.array([len(row) for row in flat], "u4")
    content = np.frombuffer(b"".join(part for row in flat for part in row), "u1")
    failed = sum("code" in fields for fields in results)
    value = tensors.encode({"counts": counts, "lengths": lengths, "content": content})
    return {"value": value, "serde": NATIVE, EACH: str(failed)}


def stacked(names: Sequence[str], rows: Sequence[Sequence[Array]]) -> dict[str, str | bytes] | None:
    """Return the fields of the result of an entry; None if its records differ in types or shapes of their outputs."""
    if len({tuple([(array.dtype, array.shape) for array in row]) for row in rows}) > 1 or not names:
        return None
    columns = {name: np.stack([row[at] for row in rows]) for at, name in enumerate(names)}
    return {"value": tensors.encode(columns), "serde": NATIVE}


def split(fields: Fields, count: int, read: Callable[[Fields], T], row: Callable[[dict[str, Array]], T]) -> list[T]:
    """Return the result of each record of an entry of `count` records.

    Args:
        fields: Result of the entry.
        count: Number of its records.
        read: Reads the result of a record.
        row: Makes the result of a record from its outputs, where these are in columns.

    Raises:
        ServingError: If the entry has failed as a whole.
    """
    if count == 1:
        return [read(fields)]
    if EACH.encode() in fields:
        return [read(each) for each in _each(fields)]
    arrays = decode_arrays(fields)
    return [row({name: array[index, ...] for name, array in arrays.items()}) for index in range(count)]


def outcomes(fields: Fields, count: int) -> list[Outputs | ServingError]:
    """Read the result of an entry of `count` records: the outputs, or the error, of each."""
    try:
        return split(fields, count, _outcome, lambda outputs: outputs)
    except ServingError as error:
        return all_failed(error, count)


def all_failed(error: ServingError, count: int) -> list[Outputs | ServingError]:
    """Return the outcomes of an entry that failed as a whole."""
    return [error, *(error.renewed() for _ in range(count - 1))]


def _each(fields: Fields) -> Iterable[Fields]:
    packed: Mapping[str, Any] = tensors.decode(fields[b"value"])[1]
    content, at, part = packed["content"].tobytes(), 0, 0
    for count in packed["counts"].tolist():
        texts = []
        for length in packed["lengths"][part : part + count].tolist():
            texts.append(content[at : at + length])
            at += length
        part += count
        yield dict(zip(texts[::2], texts[1::2]))


def _outcome(fields: Fields) -> Outputs | ServingError:
    try:
        return decode_outputs(fields)
    except ServingError as error:
        return error
