"""The original's payload encoding: base64 text of an Arrow IPC stream, all numbers float32.

Requests (clients of 0.9 to 2.4): one top-level field per input. A tensor is a struct of four lists
(`indiceData`, `indiceShape`, `data`, `shape`) spread over four rows; strings and images are one utf8 row. Results: a
record batch per output with the columns `data` (float32) and `shape` (int32, null after the dimensions).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from cluster_serving.protocol.arrow import refuse_compression, to_arrow, to_numpy
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import MAX_INPUTS, MAX_STRINGS, Array, Image, Images, Input, SparseTensor
from cluster_serving.protocol.tensors import PayloadLayout
from cluster_serving.protocol.values import base64_text

_LISTS = ("indiceData", "indiceShape", "data", "shape")
_TENSOR = pa.struct([(name, pa.list_(pa.float32() if name == "data" else pa.int32())) for name in _LISTS])
_RESULT = pa.schema([("data", pa.float32()), ("shape", pa.int32())])
# With 256 layouts in each cache, these take some 30 MiB at most.
_MAX_LAYOUTS = 256
_MAX_LAYOUT_BYTES = 1 << 15
_MAX_LAYOUT_NAMES = 1024

ERROR_VALUE = "NaN"
"""Value of every failed request. The reason is in the hash field `error`, which original clients ignore."""


def encode_request(inputs: dict[str, Input]) -> str:
    """Encode a request as the original clients do, for tests and for requests to an original server.

    Raises:
        InvalidInput: If the inputs mix images or strings with tensors, which this encoding cannot hold.
    """
    shapes = [
        (name, value.shape)
        for name, value in inputs.items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    ]
    if len(shapes) == len(inputs) and sum(len(name) for name in inputs) <= _MAX_LAYOUT_NAMES:
        layout = _request_layout(tuple(shapes))
        if layout is not None:
            return _fill(layout, inputs.values())
    return _encode_request(inputs)


def _encode_request(inputs: Mapping[str, Input]) -> str:
    arrays = []
    for name, value in inputs.items():
        if isinstance(value, Image):
            arrays.append(pa.array([base64.b64encode(value.data).decode()], pa.utf8()))
        elif isinstance(value, SparseTensor):
            indices = value.indices
            rows = (indices.ravel().tolist(), list(indices.shape), value.values.ravel().tolist(), list(value.shape))
            arrays.append(_tensor_column(rows))
        elif isinstance(value, Images):
            raise InvalidInput(f"input {name!r}: the original encoding has one image in a request")
        elif value.dtype.kind in "OU":
            arrays.append(pa.array(["|".join(value.ravel().tolist())], pa.utf8()))
        else:
            arrays.append(_tensor_column(([], [], value.astype("f4").ravel(), list(value.shape))))
        if len(arrays[-1]) != len(arrays[0]):
            raise InvalidInput(f"input {name!r}: the original encoding cannot mix tensors with images or strings")
    batch = pa.RecordBatch.from_arrays(arrays, names=list(inputs))
    return _to_base64([batch])


def decode_request(data: bytes) -> dict[str, Input]:
    """Decode the field `data` of an original client's request (Python or JVM, with either Arrow framing).

    Inputs are in the order sent; numbers are float32 arrays.
    """
    raw = _from_base64(data)
    known = _requests.read(raw)
    if known is not None:
        return {**known}
    inputs = _decode_request(raw)
    _requests.learn(raw, inputs)
    return inputs


def _decode_request(raw: bytes) -> dict[str, Input]:
    batch = _batches(raw)[0]
    if batch.num_columns > MAX_INPUTS:
        raise InvalidInput(f"the request has {batch.num_columns} inputs; at most {MAX_INPUTS} are taken")
    inputs = {name: _decode_column(name, batch.column(index)) for index, name in enumerate(batch.schema.names)}
    if not inputs or len(inputs) != batch.num_columns:
        raise InvalidInput(f"the request needs one or more inputs of different names, it has {batch.schema.names}")
    return inputs


def encode_result(outputs: Sequence[Array]) -> str:
    """Encode a model's outputs; every number becomes float32, as original clients expect.

    Raises:
        InvalidInput: If an output is empty or not numeric, so that this encoding cannot hold it.
    """
    for output in outputs:
        if output.dtype.kind not in "biuf":
            raise InvalidInput(f"an output of dtype {output.dtype} has no place in the original's result encoding")
        if not output.size:
            # The original client drops sizes of 0 and then fails. In `dequeue` it then loses all further results.
            raise InvalidInput(f"an output of shape {list(output.shape)} is empty and has no place in that encoding")
    layout = _result_layout(tuple([output.shape for output in outputs]))
    return _encode_result(outputs) if layout is None else _fill(layout, outputs)


def _encode_result(outputs: Sequence[Array]) -> str:
    batches = []
    for output in outputs:
        flat = np.ascontiguousarray(output, "f4").ravel()
        # Both columns have a row per element, so a tiny tensor has room for few dimensions. Surplus dimensions of
        # size 1 are dropped, and null fills unused rows.
        shape = list(output.shape)
        while len(shape) > flat.size:
            shape.remove(1)
        unused = pa.nulls(flat.size - len(shape), pa.int32())
        padded = pa.concat_arrays([to_arrow(np.array(shape, "i4")), unused])
        batches.append(pa.RecordBatch.from_arrays([to_arrow(flat), padded], schema=_RESULT))
    return _to_base64(batches)


def decode_result(value: str | bytes) -> list[Array]:
    """Decode a result from `encode_result`; refuse any other text."""
    raw = _from_base64(value.encode() if isinstance(value, str) else value)
    outputs = _results.read(raw)
    if outputs is None:
        outputs = _decode_result(raw)
        _results.learn(raw, outputs)
    return [output.astype("f4") for output in outputs.values()]


def _decode_result(raw: bytes) -> dict[str, Array]:
    outputs = {}
    for index, batch in enumerate(_batches(raw)):
        data = to_numpy(batch.column("data"))
        shape = [d for d in batch.column("shape").to_pylist() if d]
        outputs[str(index)] = data.reshape(shape) if math.prod(shape) == data.size else data
    return outputs


class _KnownPayloads:
    """Layouts of payloads that were read, the latest one of each length.

    Payloads of a program differ in their numbers only. Reading one whose other bytes are those of an earlier one takes
    a tenth of the time, since that one was checked.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[PayloadLayout, list[tuple[str, tuple[int, ...], int]]]] = {}

    def read(self, raw: bytes) -> dict[str, Array] | None:
        """Return the arrays, which are views of the payload; None if its layout is unknown."""
        known = self._known.get(len(raw))
        if known is None or not known[0].fits(raw):
            return None
        return {name: np.ndarray(shape, "<f4", raw, start) for name, shape, start in known[1]}

    def learn(self, raw: bytes, arrays: Mapping[str, Input]) -> None:
        """Remember the layout of a payload whose arrays were read, if it has one."""
        layout = _layout(raw, arrays.values())
        if layout is None:
            return
        if len(self._known) >= _MAX_LAYOUTS:
            self._known.clear()
        shapes = [value.shape for value in arrays.values() if isinstance(value, np.ndarray)]
        self._known[len(raw)] = layout, list(zip(arrays, shapes, layout.starts))


_requests, _results = _KnownPayloads(), _KnownPayloads()


def _layout(raw: bytes, arrays: Iterable[Input]) -> PayloadLayout | None:
    """Return the layout of a payload; None if it is large, or its arrays are no views of it of float32."""
    if len(raw) > _MAX_LAYOUT_BYTES:
        return None
    begin, end, places = np.frombuffer(raw, "u1").ctypes.data, 0, []
    for array in arrays:
        if not (isinstance(array, np.ndarray) and array.dtype == "<f4" and array.size):
            return None
        start = array.ctypes.data - begin
        if not end <= start <= len(raw) - array.nbytes:
            return None
        end = start + array.nbytes
        places.append((start, array.nbytes))
    return PayloadLayout(raw, places)


@lru_cache(maxsize=_MAX_LAYOUTS)
def _request_layout(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> PayloadLayout | None:
    if not _fit(shape for _, shape in shapes):
        return None
    raw = base64.b64decode(_encode_request({name: np.zeros(shape, "f4") for name, shape in shapes}))
    return _layout(raw, _decode_request(raw).values())


@lru_cache(maxsize=_MAX_LAYOUTS)
def _result_layout(shapes: tuple[tuple[int, ...], ...]) -> PayloadLayout | None:
    if not _fit(shapes):
        return None
    raw = base64.b64decode(_encode_result([np.zeros(shape, "f4") for shape in shapes]))
    return _layout(raw, _decode_result(raw).values())


def _fit(shapes: Iterable[Sequence[int]]) -> bool:
    """Return True if arrays of these shapes fit into a payload that may have a layout."""
    sizes = [4 * math.prod(shape) for shape in shapes]
    return 0 < sum(sizes) <= _MAX_LAYOUT_BYTES and all(sizes)


def _fill(layout: PayloadLayout, arrays: Iterable[Any]) -> str:
    """Return the base64 text of a payload with these arrays."""
    parts = layout.fill([np.ascontiguousarray(array, "<f4").data for array in arrays])
    return base64.b64encode(b"".join(parts)).decode()


def _tensor_column(rows: Sequence[object]) -> pa.Array:
    cells = [dict.fromkeys(_LISTS) | {name: row} for name, row in zip(_LISTS, rows)]
    return pa.array(cells, _TENSOR)


def _to_base64(batches: list[pa.RecordBatch]) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode()


def _from_base64(data: bytes) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise InvalidInput(f"field 'data' ({len(data)} bytes, starts {data[:16]!r}) is not base64: {error}") from None


def _batches(raw: bytes) -> list[pa.RecordBatch]:
    try:
        for message in pa.ipc.MessageReader.open_stream(raw):
            refuse_compression(message.metadata.to_pybytes())
        with pa.ipc.open_stream(raw) as reader:
            batches = list(reader)
    except InvalidInput:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidInput(f"field 'data' is base64, but not of an Arrow IPC stream: {error}") from None
    if not batches:
        raise InvalidInput("field 'data' is an Arrow IPC stream without a record batch")
    return batches


def _decode_column(name: str, column: pa.Array) -> Input:
    try:
        # Checked first, since Arrow ends the process when a part of an array of negative length is read.
        column.validate(full=True)
        if pa.types.is_struct(column.type):
            return _decode_tensor(name, column)
        value = column[0].as_py()
    except (pa.ArrowException, IndexError) as error:
        raise InvalidInput(f"input {name!r} is a damaged Arrow {column.type} column: {error}") from None
    if isinstance(value, str):
        return decode_text(name, value)
    if isinstance(value, bytes):
        return Image(value)
    if isinstance(value, (int, float)):
        return np.array(value, "f4")
    raise InvalidInput(f"input {name!r} is an Arrow {column.type}; expected a tensor struct, utf8, int32 or float32")


def decode_text(name: str, text: str) -> Input:
    """Decode a text: a text with `|` is a string tensor of at most `MAX_STRINGS`, any other text a base64 image."""
    if "|" in text:
        if text.count("|") >= MAX_STRINGS:
            raise RequestTooLarge(f"input {name!r} holds more than {MAX_STRINGS} strings")
        return np.array(text.split("|"), object)
    try:
        return Image(base64_text.decode(text, lines_only=True))
    except ValueError:
        raise InvalidInput(
            f"input {name!r} is the text {text[:32]!r}, neither a base64 image nor a string tensor: the original "
            "encoding marks string tensors by '|' and so needs two or more strings"
        ) from None


def _decode_tensor(name: str, column: pa.StructArray) -> Input:
    """Decode a tensor. All values of a child are read, in whatever rows they are (JVM clients use other rows)."""
    lists: dict[str, Array] = {}
    for child in _LISTS:
        index = column.type.get_field_index(child)
        if index < 0:
            if child in ("data", "shape"):
                raise InvalidInput(f"input {name!r}: the tensor struct has no field {child!r}")
            continue
        lists[child] = _child_values(name, column.field(index))
    shape = tuple(int(d) for d in lists["shape"])
    data = lists["data"]
    if any(d < 0 for d in shape):
        raise InvalidInput(f"input {name!r} has shape {list(shape)}; no dimension may be negative")
    indices, indices_shape = (lists.get(child, np.array([], "i4")) for child in ("indiceData", "indiceShape"))
    if indices_shape.size:
        if math.prod(int(d) for d in indices_shape) != indices.size or len(indices_shape) != 2:
            raise InvalidInput(
                f"input {name!r}: {indices.size} sparse indices do not fill the shape {indices_shape.tolist()}"
            )
        return SparseTensor(indices.reshape(indices_shape).astype("i8"), data, shape)
    if math.prod(shape) != data.size:
        raise InvalidInput(f"input {name!r} has {data.size} values for shape {list(shape)}")
    return data.reshape(shape)


def _child_values(name: str, child: pa.Array) -> Array:
    if not pa.types.is_list(child.type):
        raise InvalidInput(f"input {name!r}: a tensor field is an Arrow {child.type}, expected a list")
    values = child.values
    if pa.types.is_string(values.type):
        if len(values) > MAX_STRINGS:
            raise RequestTooLarge(f"input {name!r} holds {len(values)} strings; at most {MAX_STRINGS} are taken")
        return np.array(values.to_pylist(), object)
    if values.null_count or not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise InvalidInput(f"input {name!r}: a tensor field holds {values.type} with nulls or of another type")
    array = to_numpy(values)
    return array.astype("f4", copy=False) if pa.types.is_floating(values.type) else array
