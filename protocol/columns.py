"""Requests of several records in one stream entry: each input, and each output, has the records in one column.

An entry with the field `records` has that many records, whose inputs are stacked along a new first dimension. Its
result has the outputs stacked alike. If the records differ in their outputs, or some have failed, it has the result of
each record instead (`EACH`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, Union, overload

import numpy as np

from cluster_serving.protocol import tensors
from cluster_serving.protocol.entry import MOST_RECORDS, NATIVE
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.inputs import Array, Image, Images
from cluster_serving.protocol.keys import to_bytes
from cluster_serving.protocol.results import URI, VERSION, Fields, Outputs, decode_arrays, decode_outputs, to_fields
from cluster_serving.protocol.signature import Signature

T = TypeVar("T")

EACH = "each"
"""Field of a result that has the fields of each record's own result: the number of records that have failed."""

MOST_BYTES = 4 << 20
"""Most bytes of the inputs of records that share an entry: Redis serves no other client while it reads an entry."""

MOST_ENCODED = 4 * MOST_BYTES + (1 << 20)
"""Most bytes of such an entry: of a text, its characters are counted."""

STACKED_BYTES = 1 << 14
"""Most bytes of the arrays of a record that are stacked: larger ones gain little, and an event loop copies them."""


class Columns(Sequence[dict[str, Any]]):
    """Inputs or outputs of records, each a column; outputs are arrays."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = arrays

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Columns: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | Columns:
        if isinstance(index, slice):
            return Columns({name: array[index] for name, array in self.arrays.items()})
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return {name: array[index, ...] for name, array in self.arrays.items()}

    def ends(self, most: int) -> Iterator[int]:
        """Yield the ends of parts of at most `most` records, and of `MOST_BYTES` if they are several."""
        count, end = len(self), 0
        sizes = np.broadcast_to(sum(map(_sizes, self.arrays.values())), count).cumsum()
        while end < count:
            fitting = sizes.searchsorted(MOST_BYTES + (sizes[end - 1] if end else 0), "right")
            end = min(end + most, count, max(end + 1, int(fitting)))
            yield end


Outcomes = Sequence[Union[Outputs, ServingError]]
"""Outputs or error of each record, in order; `Columns` if they have outputs of the same types and shapes."""

Chunk = tuple[Sequence[int], tensors.Inputs]
"""Records that share an entry: their indices among all, and their inputs, stacked if there are several."""


def chunks(records: Sequence[tensors.Inputs], most: int) -> list[Chunk]:
    """Divide records into entries of at most `most` records and `MOST_BYTES`.

    Records share an entry if their inputs have the same names, types and shapes, and no input is sparse.
    """
    if most < 2 or len(records) < 2:
        return [([index], record) for index, record in enumerate(records)]
    if isinstance(records, Columns):
        return _parts(range(len(records)), records, most)
    decoded = [tensors.decode(each.data)[1] if isinstance(each, tensors.Encoded) else each for each in records]
    groups: dict[Hashable, list[int]] = {}
    for index, record in enumerate(decoded):
        groups.setdefault(_kinds(record) or index, []).append(index)
    found: list[Chunk] = []
    for members in groups.values():
        if len(members) == 1:
            found.append((members, records[members[0]]))
        else:
            found += _parts(members, _stacked([decoded[index] for index in members]), most)
    return found


def _parts(indices: Sequence[int], records: Columns, most: int) -> list[Chunk]:
    found: list[Chunk] = []
    start = 0
    for end in records.ends(min(most, MOST_RECORDS)):
        part = records[start:end]
        found.append((indices[start:end], part.arrays if len(part) > 1 else part[0]))
        start = end
    return found


def _kinds(record: Mapping[str, Any]) -> Hashable:
    """Return what records that share an entry have in common; None if the record shares none."""
    kinds: list[Hashable] = []
    size = 0
    for name, value in record.items():
        if isinstance(value, np.ndarray):
            kinds.append((name, value.dtype.str, value.shape))
            size += sum(_lengths(value)) if value.dtype == object else value.nbytes
        elif isinstance(value, Image):
            kinds.append(name)
        else:
            return None
    return tuple(kinds) if size <= STACKED_BYTES else None


def _stacked(records: Sequence[Mapping[str, Any]]) -> Columns:
    columns = {name: [record[name] for record in records] for name in records[0]}
    return Columns(
        {
            name: Images([image.data for image in values]) if isinstance(values[0], Image) else np.stack(values)
            for name, values in columns.items()
        }
    )


def _lengths(texts: Array) -> Iterator[int]:
    """Return the length of each text; a missing one has none."""
    return (len(text or "") for text in texts.flat)


def _sizes(column: Array | Images) -> Any:
    """Return the bytes of each record of a column, or those of all if they are of one size."""
    if isinstance(column, Images):
        return np.fromiter(map(len, column.files), "i8", len(column))
    if column.dtype == object:
        return np.fromiter(_lengths(column), "i8", column.size).reshape(len(column), -1).sum(1)
    return column.nbytes // len(column)


def gathered(chunks: Sequence[Chunk], outcomes: Sequence[Outcomes]) -> Outcomes:
    """Return the outcomes of all records in their order, from those of each chunk; as columns if they can be."""
    if len(outcomes) == 1 and list(chunks[0][0]) == list(range(len(outcomes[0]))):
        return outcomes[0]
    parts = [part.arrays for part in outcomes if isinstance(part, Columns)]
    kinds = {tuple([(name, array.dtype, array.shape[1:]) for name, array in part.items()]) for part in parts}
    if len(parts) == len(chunks) and len(kinds) == 1 and all(isinstance(indices, range) for indices, _ in chunks):
        return Columns({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    found = {at: one for (indices, _), part in zip(chunks, outcomes) for at, one in zip(indices, part)}
    return [found[index] for index in range(len(found))]


def of_record(columns: Signature, count: int) -> Signature:
    """Return the signature of each of the `count` records of an entry.

    Raises:
        InvalidInput: If an input is not that many records in a column.
    """
    for column in columns:
        most = 1 if column.kind == "image" else len(column.shape)
        fits = column.shape[:1] == (count,) and len(column.shape) <= most
        if column.kind not in ("tensor", "string", "image") or not fits:
            raise InvalidInput(
                f"input {column.name!r} is a {column.kind} of shape {list(column.shape)}; expected a tensor, "
                f"texts or images of {count} records in the first dimension"
            )
    return tuple([column._replace(shape=column.shape[1:]) for column in columns])


def joined(results: Sequence[Mapping[str, str | bytes]]) -> dict[str, str | bytes]:
    """Return the fields of the result of an entry, from those of the results of its records."""
    flat = [[part for pair in to_fields(fields).items() for part in pair] for fields in results]
    lengths = np.array([len(part) for row in flat for part in row], "u4")
    counts = np.array([len(row) for row in flat], "u4")
    content = np.frombuffer(b"".join(part for row in flat for part in row), "u1")
    failed = sum("code" in fields for fields in results)
    value = tensors.encode({"counts": counts, "lengths": lengths, "content": content})
    return {"value": value, "serde": NATIVE, EACH: str(failed)}


def stacked(names: Sequence[str], parts: Sequence[Sequence[Array]]) -> dict[str, str | bytes] | None:
    """Return the fields of the result of an entry; None if its records differ in types or shapes of their outputs.

    A part has an array per output, with some of the records in its first dimension.
    """
    if len({tuple([(array.dtype, array.shape[1:]) for array in part]) for part in parts}) > 1 or not names:
        return None
    columns = {name: _concatenated([part[at] for part in parts]) for at, name in enumerate(names)}
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
        return [read(each) for each in results(fields)]
    return [*map(row, Columns(decode_arrays(fields)))]


def named(fields: Fields, uri: str) -> Fields:
    """Return the fields of a result; those of errors with the uri of the request, which a result hash does not have."""
    return {**fields, URI: to_bytes(uri)} if b"code" in fields or EACH.encode() in fields else fields


def outcomes(fields: Fields, count: int) -> Outcomes:
    """Read the result of an entry of `count` records: the outputs, or the error, of each."""
    try:
        if count > 1 and EACH.encode() not in fields:
            return Columns(decode_arrays(fields))
        return split(fields, count, _outcome, lambda outputs: outputs)
    except ServingError as error:
        return all_failed(error, count)


def all_failed(error: ServingError, count: int) -> list[Outputs | ServingError]:
    """Return the outcomes of an entry that failed as a whole."""
    return [error, *(error.renewed() for _ in range(count - 1))]


def _concatenated(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def results(fields: Fields) -> Iterator[Fields]:
    """Yield the result of each record, with the version of all, from a result that has them (`EACH`)."""
    version = {VERSION: fields[VERSION]} if VERSION in fields else {}
    packed: Mapping[str, Any] = tensors.decode(fields[b"value"])[1]
    content, at, part = packed["content"].tobytes(), 0, 0
    for count in packed["counts"].tolist():
        texts = []
        for length in packed["lengths"][part : part + count].tolist():
            texts.append(content[at : at + length])
            at += length
        part += count
        yield {**version, **dict(zip(texts[::2], texts[1::2]))}


def _outcome(fields: Fields) -> Outputs | ServingError:
    try:
        return decode_outputs(fields)
    except ServingError as error:
        return error
