"""Our own payload encoding: one Arrow IPC stream with one row, one column per named tensor, and true dtypes.

| kind   | Arrow column                            | field metadata        |
|--------|-----------------------------------------|-----------------------|
| tensor | binary, little-endian, C order          | kind, dtype, shape    |
| string | list of utf8, C order; null is missing  | kind, shape           |
| image  | binary, the encoded file                | kind                  |
|        | list of binary, the files of records    | kind, shape           |
| sparse | struct of binary indices (int64), values | kind, dtype, shape   |

A shape is written as its numbers separated by commas; a scalar's is empty. Requests and results share the encoding.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Union

import numpy as np
import pyarrow as pa

from cluster_serving.protocol.arrow import refuse_compression, to_binary, to_list
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array, Image, Images, Input, SparseTensor
from cluster_serving.protocol.signature import (
    LITTLE_ENDIAN,
    NAMES,
    SPARSE_TYPE,
    Column,
    Signature,
    column_of,
    field_of,
    signature,
)

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_CONTINUATION = b"\xff\xff\xff\xff"
_MAX_SCHEMA_BYTES = 1 << 16
_MAX_LAYOUT_BYTES = 1 << 24
# Limits of a cached signature: 256 of them take at most some 40 MiB.
_MAX_CACHED_NAMES, _MAX_CACHED_CHARACTERS, _MAX_CACHED_BYTES = 64, 1024, 1 << 14
_ONLY_ARRAYS = {np.ndarray}
_SENT_UNCHANGED = frozenset(LITTLE_ENDIAN.values())


class Encoded(NamedTuple):
    """Inputs of a request that are encoded already, as in the process that read them.

    Attributes:
        data: What `encode` returned.
    """

    data: bytes


Inputs = Union[Mapping[str, Input], Encoded]
"""Inputs of a request: named tensors, or what `encode` made of them."""


class PayloadLayout:
    """The constant parts of payloads of one signature, and the positions of the numbers between them.

    Payloads of one signature that hold only numbers have equal schemas, record batch headers and offsets. Client and
    job take these bytes from a cache, in a third of the time of building and parsing a record batch. Payloads that
    another Arrow library laid out differently are parsed in full.

    The places are start and length of the numbers of each array in a payload, in the order of the starts.
    """

    def __init__(self, payload: bytes, places: Sequence[tuple[int, int]]) -> None:
        self.starts = [start for start, _ in places]
        ends = [start + size for start, size in places]
        self._slices = [slice(end, start) for end, start in zip([0, *ends], [*self.starts, len(payload)])]
        self._constant = [payload[part] for part in self._slices]
        self._parts: list[bytes | memoryview] = [b""] * (2 * len(places) + 1)
        self._parts[::2] = self._constant
        self._length = len(payload)

    def fill(self, data: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
        """Return the parts of a payload with these numbers: for each column, contiguous bytes of the right size."""
        parts = self._parts.copy()
        parts[1::2] = data
        return parts

    def fits(self, payload: bytes) -> bool:
        """Return True if a payload has this layout."""
        return len(payload) == self._length and [payload[part] for part in self._slices] == self._constant


def encode(tensors: Mapping[str, Input]) -> bytes:
    """Encode named tensors; see `encode_parts`."""
    return b"".join(encode_parts(tensors))


def encode_parts(tensors: Inputs) -> Sequence[bytes | memoryview]:
    """Encode named tensors without copying large ones: the parts may be views of the arrays given.

    Raises:
        InvalidInput: If there is no tensor, or a tensor has a dtype that cannot be sent.
    """
    if isinstance(tensors, Encoded):
        return [tensors.data]
    if not tensors:
        raise InvalidInput("the request has no inputs: pass at least one, such as x=numpy.zeros(3)")
    values: list[Any] = list(tensors.values())
    if set(map(type, values)) == _ONLY_ARRAYS and is_cacheable(tensors):
        kinds = [(name, value.dtype, value.shape) for name, value in zip(tensors, values)]
        layout = layout_of(tuple(kinds))
        if layout is not None:
            return layout.fill([_little_endian(array).data for array in values])
    return [_encode(signature(tensors), values)]


def decode(data: bytes) -> tuple[Signature, dict[str, Input]]:
    """Decode a payload from `encode`; numeric tensors are read-only views of `data`.

    Raises:
        InvalidInput: If the bytes are not such a stream; the message says at what place.
    """
    try:
        length, (schema, columns, layout, offsets) = _head(data)
        if layout is not None and layout.fits(data):
            return columns, {name: np.ndarray(shape, dtype, data, start) for name, shape, dtype, start in offsets}
        refuse_compression(data[length + 8 :])
        batch = pa.ipc.read_record_batch(pa.py_buffer(data).slice(length), schema)
        batch.validate(full=True)
    except InvalidInput:
        raise
    except (pa.ArrowException, EOFError, OSError, ValueError) as error:
        raise InvalidInput(f"the payload is not a readable Arrow IPC stream: {error}") from None
    if batch.num_rows != 1:
        raise InvalidInput(f"the Arrow record batch has {batch.num_rows} rows, expected 1")
    return columns, {column.name: _from_arrow(column, batch.column(index)) for index, column in enumerate(columns)}


def count_strings(data: bytes) -> int:
    """Return the number of strings in a payload from `encode`; 0 if `decode` cannot read it."""
    try:
        _, (_, columns, _, _) = _head(data)
    except (pa.ArrowException, EOFError, OSError, ValueError):
        return 0
    return sum(math.prod(column.shape) for column in columns if column.kind == "string")


def _encode(columns: Signature, values: Sequence[Input]) -> bytes:
    schema, head = _schema(columns) if is_cacheable([c.name for c in columns]) else _schema.__wrapped__(columns)
    arrays = [_to_arrow(column, value) for column, value in zip(columns, values)]
    body = pa.RecordBatch.from_arrays(arrays, schema=schema).serialize()
    return b"".join((head, body, _END_OF_STREAM))


def is_cacheable(names: Collection[str]) -> bool:
    """Return True if the schema of these names may be cached. Clients choose names, so the cache has to be bounded."""
    return len(names) <= _MAX_CACHED_NAMES and sum(map(len, names)) <= _MAX_CACHED_CHARACTERS


@lru_cache(maxsize=256)
def layout_of(arrays: tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]) -> PayloadLayout | None:
    """Return `_layout` for arrays by name, dtype and shape, which takes less time to look up."""
    if any(dtype not in NAMES for _, dtype, _ in arrays):
        return None
    return _layout(tuple(Column(name, "tensor", NAMES[dtype], shape) for name, dtype, shape in arrays))


@lru_cache(maxsize=256)
def _layout(columns: Signature) -> PayloadLayout | None:
    """Return the layout of payloads of a signature; None if they do not hold only numbers, or too many."""
    if any(column.kind != "tensor" or 0 in column.shape for column in columns) or _size(columns) > _MAX_LAYOUT_BYTES:
        return None
    payload = _encode(columns, [np.zeros(column.shape, column.dtype) for column in columns])
    schema, head = _schema(columns)
    buffer = pa.py_buffer(payload)
    batch = pa.ipc.read_record_batch(buffer.slice(len(head)), schema)
    data = [column.buffers()[2] for column in batch.columns]
    return PayloadLayout(payload, [(part.address - buffer.address, part.size) for part in data])


def _size(columns: Signature) -> int:
    return sum(math.prod(column.shape) * np.dtype(column.dtype or "u1").itemsize for column in columns)


@lru_cache(maxsize=256)
def _schema(columns: Signature) -> tuple[pa.Schema, bytes]:
    # Building and serializing a schema costs more than the rest of a small request, and clients repeat theirs.
    schema = pa.schema([field_of(column) for column in columns])
    head = schema.serialize().to_pybytes()
    if len(head) > _MAX_SCHEMA_BYTES:
        raise InvalidInput(
            f"{len(columns)} arrays have names and shapes of {len(head)} bytes; at most {_MAX_SCHEMA_BYTES} are taken"
        )
    return schema, head


_Offsets = Sequence[tuple[str, tuple[int, ...], "np.dtype[Any]", int]]


@lru_cache(maxsize=256)
def _columns(head: bytes, bits: int) -> tuple[pa.Schema, Signature, PayloadLayout | None, _Offsets]:
    """Parse an Arrow schema. Return name, shape, dtype and offset of each array if the payload has a fixed layout.

    `bits` is the number of bits of the payload's length. A payload that is shorter than its schema claims gets no
    layout, which would take as much memory as claimed.
    """
    schema = pa.ipc.read_schema(pa.py_buffer(head))
    names = [field.name for field in schema]
    if not names or len(set(names)) != len(names):
        raise InvalidInput(f"the request needs one or more inputs of different names, it has {names}")
    columns = tuple(column_of(field) for field in schema)
    layout = _layout(columns) if is_cacheable(names) and _size(columns) < 1 << bits else None
    starts = layout.starts if layout is not None else []
    offsets = [(c.name, c.shape, LITTLE_ENDIAN[c.dtype], start) for c, start in zip(columns, starts)]
    return schema, columns, layout, offsets


def _head(data: bytes) -> tuple[int, tuple[pa.Schema, Signature, PayloadLayout | None, _Offsets]]:
    """Return the number of bytes of the schema at the start of a payload, and what `_columns` reads from it."""
    if len(data) < 8 or data[:4] != _CONTINUATION:
        raise InvalidInput(f"the payload is not an Arrow IPC stream: its first bytes are {data[:8]!r}")
    length = 8 + struct.unpack_from("<i", data, 4)[0]
    if not 8 < length <= min(len(data), _MAX_SCHEMA_BYTES):
        raise InvalidInput(f"the Arrow schema claims {length - 8} bytes in a payload of {len(data)}")
    read = _columns if length <= _MAX_CACHED_BYTES else _columns.__wrapped__
    return length, read(data[:length], len(data).bit_length())


def _to_arrow(column: Column, value: Input) -> pa.Array:
    if isinstance(value, Image):
        return to_binary(value.data)
    if isinstance(value, Images):
        return to_list(value.files, pa.binary())
    if isinstance(value, SparseTensor):
        parts = (np.ascontiguousarray(value.indices, "<i8"), _little_endian(value.values))
        return pa.Array.from_buffers(SPARSE_TYPE, 1, [None], children=list(map(to_binary, parts)))
    if column.kind == "string":
        strings = value.ravel().tolist()
        if not all(item is None or isinstance(item, str) for item in strings):
            raise InvalidInput(f"{column.name!r} is an array of objects; expected all of them to be str, or None")
        try:
            return to_list([None if item is None else item.encode() for item in strings], pa.utf8())
        except UnicodeEncodeError as error:
            raise InvalidInput(f"{column.name!r} holds {error.object[:32]!a}, which is not Unicode text") from None
    return to_binary(_little_endian(value))


def _little_endian(array: Array) -> Array:
    if array.flags.c_contiguous and array.dtype in _SENT_UNCHANGED:
        return array
    return np.asarray(array, LITTLE_ENDIAN[NAMES[array.dtype]], order="C")


def _from_arrow(column: Column, array: pa.Array) -> Input:
    if column.kind == "sparse":
        indices, values = (array.field(child)[0].as_buffer() for child in ("indices", "values"))
        return _sparse(column, indices, values)
    if column.kind == "string" or (column.kind == "image" and column.shape):
        values = array[0].values
        count = len(values) - (values.null_count if column.kind == "image" else 0)
        if count != math.prod(column.shape) or count < len(values):
            raise InvalidInput(f"input {column.name!r} has {count} {column.kind}s for shape {column.shape}")
        if column.kind == "image":
            return Images(values.to_pylist())
        return np.fromiter(values.to_pylist(), object, len(values)).reshape(column.shape)
    buffer = array[0].as_buffer()
    if column.kind == "image":
        return Image(buffer.to_pybytes())
    return _numbers(column.name, buffer, column.dtype, column.shape)


def _numbers(name: str, buffer: pa.Buffer, dtype: str, shape: tuple[int, ...]) -> Array:
    little_endian = LITTLE_ENDIAN[dtype]
    expected = math.prod(shape) * little_endian.itemsize
    if buffer.size != expected:
        raise InvalidInput(f"input {name!r} has {buffer.size} bytes; {dtype} of shape {list(shape)} needs {expected}")
    return np.frombuffer(buffer, little_endian).reshape(shape)


def _sparse(column: Column, indices: pa.Buffer, values: pa.Buffer) -> SparseTensor:
    count, rest = divmod(values.size, np.dtype(column.dtype).itemsize)
    if rest:
        raise InvalidInput(f"input {column.name!r} has {values.size} bytes of {column.dtype} values")
    return SparseTensor(
        _numbers(column.name, indices, "int64", (len(column.shape), count)),
        _numbers(column.name, values, column.dtype, (count,)),
        column.shape,
    )
