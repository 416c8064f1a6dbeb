"""The datatypes of the Open Inference Protocol v2, and their bytes.

Source: "Tensor Data" of the protocol, and the binary tensor data extension of Triton. Numbers are little-endian, in C
order. An element of BYTES is its length (uint32), then its content. In Python, a tensor of BYTES is an object array of
`bytes`.

An input that does not follow the protocol raises `InvalidInput`; one with too many elements, `RequestTooLarge`.
"""

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import MAX_DIMENSIONS, MAX_STRINGS, Array
from cluster_serving.protocol.slots import TensorSpec
from cluster_serving.protocol.values.arrays import of_array, of_lists
from cluster_serving.protocol.values.floats import pack_floats
from cluster_serving.protocol.values.lists import shown
from cluster_serving.protocol.values.table import Refused

BYTES = "BYTES"

BF16 = "BF16"
"""The upper halves of FP32, in raw bytes only. numpy does not have it, so it becomes float32, without loss."""

_NAMES = {
    "bool": "BOOL",
    **{f"{kind}{bits}": f"{kind.upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
    "str": BYTES,
    "": "",
}
DTYPES = {datatype: np.dtype(name).newbyteorder("<") for name, datatype in _NAMES.items() if name not in ("str", "")}
"""Datatype → numpy dtype, of the datatypes that are numbers."""

INPUTS = (*DTYPES, BF16, BYTES)
"""Datatypes of inputs."""

_TEXT = 128
_MAX_ELEMENTS = 1 << 48


def of_name(dtype: str) -> str:
    """Return the datatype of a dtype that a slot reported; empty if the model does not declare it."""
    return _NAMES.get(dtype, dtype.upper())


def of_output(name: str, array: Array) -> str:
    """Return the datatype of an output. A dtype without one raises `InferenceFailed`."""
    datatype = BYTES if array.dtype.kind in "OSU" else _NAMES.get(array.dtype.name)
    if datatype is None:
        raise InferenceFailed(f"output {name!r} is {array.dtype}, for which the v2 protocol has no datatype")
    return datatype


def check(name: str, datatype: object, shape: object) -> tuple[str, tuple[int, ...]]:
    """Check the datatype and the shape of an input, and return both."""
    if datatype not in INPUTS:
        known = ", ".join(INPUTS)
        raise InvalidInput(f"input {name!r} has datatype {shown(datatype)}; expected one of {known}")
    if (
        isinstance(shape, str)
        or not isinstance(shape, Sequence)
        or len(shape) > MAX_DIMENSIONS
        or not all(type(size) is int and 0 <= size < 1 << 62 for size in shape)
    ):
        raise InvalidInput(
            f"input {name!r} has shape {repr(shape)[:64]}; expected a list of up to {MAX_DIMENSIONS} sizes from 0 up"
        )
    # An empty tensor has no bytes, but numpy refuses it if the product of its other sizes is too large.
    if 0 in shape and math.prod(size for size in shape if size) > _MAX_ELEMENTS:
        raise InvalidInput(f"input {name!r} has shape {str(shape)[:64]}, which no tensor can have")
    return str(datatype), tuple(shape)


def check_count(name: str, count: int) -> None:
    """Refuse more elements of BYTES than the job takes. Millions of empty elements would delay other clients."""
    if count > MAX_STRINGS:
        raise RequestTooLarge(f"input {name!r} has {count} elements of BYTES; at most {MAX_STRINGS} are taken")


def text_cost(count: int) -> int:
    """Return the cost of reading and converting elements of BYTES, in bytes, for `Offload.run`."""
    return _TEXT * min(count, MAX_STRINGS)


def from_raw(name: str, datatype: str, shape: tuple[int, ...], data: bytes | memoryview) -> Array:
    """Read all bytes of a tensor, with datatype and shape from `check`; numbers become a read-only view of them."""
    count = math.prod(shape)
    if datatype == BYTES:
        check_count(name, count)
        return np.fromiter(_split(name, shape, count, bytes(data)), object).reshape(shape)
    dtype = np.dtype("<u2") if datatype == BF16 else DTYPES[datatype]
    if len(data) != count * dtype.itemsize:
        raise InvalidInput(
            f"input {name!r} has {len(data)} bytes; {datatype} of shape {list(shape)} needs {count * dtype.itemsize}"
        )
    if datatype == "BOOL":
        # In the protocol any byte but 0 is true; in numpy only 1 is.
        return np.not_equal(np.frombuffer(data, np.uint8), 0).reshape(shape)
    array = np.frombuffer(data, dtype).reshape(shape)
    return (array.astype("<u4") << 16).view("<f4") if datatype == BF16 else array


def to_raw(array: Array, datatype: str) -> bytes:
    """Write the bytes of numbers, or of an object array of `str` or `bytes`, with the datatype from `of_output`."""
    if datatype != BYTES:
        return array.astype(DTYPES[datatype], copy=False).tobytes()
    return b"".join(part for item in contents(array) for part in (struct.pack("<I", len(item)), item))


def contents(array: Array) -> list[bytes]:
    """Return the contents of the elements of BYTES: text as UTF-8."""
    return [item if isinstance(item, bytes) else str(item).encode() for item in array.flat]


def from_bytes(name: str, shape: tuple[int, ...], items: Sequence[bytes | None]) -> Array:
    """Make a tensor of BYTES of its elements in C order."""
    _check_count(name, BYTES, shape, len(items))
    return np.fromiter(items, object).reshape(shape)


def from_numbers(name: str, datatype: str, shape: tuple[int, ...], values: list[Any] | Array) -> Array:
    """Read numbers of JSON or of protobuf: a flat sequence in C order, or nested lists of the shape.

    Datatype and shape are those that `check` returned; BYTES is no number, and BF16 has no such form. Values become the
    datatype by the table of conversions (`protocol.values.table`).
    """
    if datatype == BF16:
        raise InvalidInput(f"input {name!r} is BF16, for which only binary data can be used")
    dtype = DTYPES[datatype]
    if datatype == "FP32" and (packed := pack_floats(values)) is not None:
        array = np.frombuffer(packed[0], dtype).reshape(packed[1])
    else:
        array = _typed(name, datatype, values, dtype)
    if array.shape == shape:
        return array
    if array.ndim != 1 and array.size:
        raise InvalidInput(f"input {name!r} has data of shape {list(array.shape)}; its shape says {list(shape)}")
    _check_count(name, datatype, shape, array.size)
    return array.reshape(shape)


def flatten(values: Iterable[Any], depth: int = MAX_DIMENSIONS) -> list[Any]:
    """Return the elements of nested lists in C order; lists nested deeper than any tensor stay lists."""
    flat: list[Any] = []
    for value in values:
        if isinstance(value, list) and depth:
            flat += flatten(value, depth - 1)
        else:
            flat.append(value)
    return flat


def _typed(name: str, datatype: str, values: list[Any] | Array, dtype: np.dtype[Any]) -> Array:
    spec = TensorSpec(name, dtype.name, None)
    try:
        return of_array(values, spec) if isinstance(values, np.ndarray) else of_lists(name, values, spec)
    except Refused as error:
        raise error.of(name) from None
    except ValueError as error:
        raise InvalidInput(f"input {name!r} is not a tensor of {datatype}: {error}") from None


def _split(name: str, shape: tuple[int, ...], count: int, data: bytes) -> list[bytes]:
    items: list[bytes] = []
    position, end = 0, len(data)
    while position < end and len(items) <= count:
        start = position + 4
        position = start + int.from_bytes(data[position:start], "little")
        if start > end or position > end:
            raise InvalidInput(f"input {name!r} is BYTES whose element {len(items)} reaches beyond its {end} bytes")
        items.append(data[start:position])
    _check_count(name, BYTES, shape, len(items))
    return items


def _check_count(name: str, datatype: str, shape: tuple[int, ...], count: int) -> None:
    if count != math.prod(shape):
        raise InvalidInput(
            f"input {name!r} has {count} elements; {datatype} of shape {list(shape)} needs {math.prod(shape)}"
        )
