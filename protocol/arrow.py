"""Arrow's messages and columns as bytes: a check that Arrow itself does not make, and conversions without pandas.

`pa.array` imports pandas at its first call, whatever it converts: 50 MB, and a quarter of a second.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array

_RECORD_BATCH = 3
_HEADER_TYPE, _HEADER = 1, 2
_COMPRESSION = 3
_MAX_BYTES = (1 << 31) - 1


def refuse_compression(metadata: bytes) -> None:
    """Refuse a compressed record batch, a few bytes of which could decompress to any size.

    `metadata` is the flatbuffer of an Arrow IPC message; damaged metadata is refused too.
    """
    try:
        message = struct.unpack_from("<I", metadata)[0]
        header_type = _field(metadata, message, _HEADER_TYPE)
        if not header_type or metadata[header_type] != _RECORD_BATCH:
            return
        header = _field(metadata, message, _HEADER)
        batch = header + struct.unpack_from("<I", metadata, header)[0]
        compressed = _field(metadata, batch, _COMPRESSION)
    except (struct.error, IndexError):
        raise InvalidInput("the payload is not a readable Arrow IPC stream: a message has damaged metadata") from None
    if compressed:
        raise InvalidInput("the payload is a compressed Arrow IPC stream; send it without compression")


def _field(buffer: bytes, table: int, index: int) -> int:
    """Return the position of a field of a flatbuffer table; 0 if the field is absent."""
    vtable = table - struct.unpack_from("<i", buffer, table)[0]
    if 4 + 2 * index >= struct.unpack_from("<H", buffer, vtable)[0]:
        return 0
    offset: int = struct.unpack_from("<H", buffer, vtable + 4 + 2 * index)[0]
    return table + offset if offset else 0


def to_arrow(values: Array) -> pa.Array:
    """Return an array of one axis without a copy of its numbers."""
    if values.dtype.kind not in "iuf" or not values.dtype.isnative:
        return pa.array(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def to_list(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    """Return a column of one list, of texts in UTF-8 (`pa.utf8()`) or of files (`pa.binary()`); None is missing.

    Raises:
        InvalidInput: If they are too large for one request.
    """
    present = None
    if None in values:
        present = pa.py_buffer(np.packbits([value is not None for value in values], bitorder="little"))
    data = [value or b"" for value in values]
    ends = list(accumulate(map(len, data), initial=0))
    if ends[-1] > _MAX_BYTES:
        raise InvalidInput(f"an input has {ends[-1]} bytes; at most {_MAX_BYTES} can be sent")
    buffers = [present, pa.py_buffer(struct.pack(f"<{len(ends)}i", *ends)), pa.py_buffer(b"".join(data))]
    items = pa.Array.from_buffers(kind, len(values), buffers)
    places = pa.py_buffer(struct.pack("<ii", 0, len(values)))
    return pa.Array.from_buffers(pa.list_(kind), 1, [None, places], children=[items])


def to_binary(data: bytes | memoryview | Array) -> pa.Array:
    """Return a column of one value, without a copy of its bytes.

    Raises:
        InvalidInput: If they are too large for one request.
    """
    buffer = pa.py_buffer(data)
    if buffer.size > _MAX_BYTES:
        raise InvalidInput(f"an input has {buffer.size} bytes; at most {_MAX_BYTES} can be sent")
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(struct.pack("<ii", 0, buffer.size)), buffer])


def to_numpy(column: pa.Array) -> Array:
    """Return a column of numbers or truth values, without a copy if no number is missing, and without pandas."""
    kind = column.type
    if pa.types.is_boolean(kind) or column.null_count:
        return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    letter = "f" if pa.types.is_floating(kind) else "i" if pa.types.is_signed_integer(kind) else "u"
    dtype = np.dtype(f"{letter}{kind.bit_width // 8}")
    numbers = column.buffers()[1] or b""
    return np.frombuffer(numbers, dtype, len(column), column.offset * dtype.itemsize)
