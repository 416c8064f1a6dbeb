"""The original's payload encoding: base64 text of an Arrow IPC stream, all numbers float32.

Requests (clients of 0.9 to 2.4): one top-level field per input. A tensor is a struct of four lists
(`indiceData`, `indiceShape`, `data`, `shape`) spread over four rows; strings and images are one utf8 row. Results: a
record batch per output with the columns `data` (float32) and `shape` (int32, null after the dimensions).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cluster_serving.protocol.arrow import refuse_compression
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import MAX_INPUTS, MAX_STRINGS, Array, Image, Input, SparseTensor

_LISTS = ("indiceData", "indiceShape", "data", "shape")
_TENSOR = pa.struct([(name, pa.list_(pa.float32() if name == "data" else pa.int32())) for name in _LISTS])
_RESULT = pa.schema([("data", pa.float32()), ("shape", pa.int32())])

ERROR_VALUE = "NaN"
"""Value of every failed request. The reason is in the hash field `error`, which original clients ignore."""


def encode_request(inputs: dict[str, Input]) -> str:
    """Encode a request as the original clients do, for tests and for requests to an original server.

    Raises:
        InvalidInput: If the inputs mix images or strings with tensors, which this encoding cannot hold.
    """
    arrays = []
    for name, value in inputs.items():
        if isinstance(value, Image):
            arrays.append(pa.array([base64.b64encode(value.data).decode()], pa.utf8()))
        elif isinstance(value, SparseTensor):
            indices = value.indices
            rows = (indices.ravel().tolist(), list(indices.shape), value.values.ravel().tolist(), list(value.shape))
            arrays.append(_tensor_column(rows))
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
    batch = _from_base64(data)[0]
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
    batches = []
    for output in outputs:
        if output.dtype.kind not in "biuf":
            raise InvalidInput(f"an output of dtype {output.dtype} has no place in the original's result encoding")
        if not output.size:
            # The original client drops sizes of 0 and then fails. In `dequeue` it then loses all further results.
            raise InvalidInput(f"an output of shape {list(output.shape)} is empty and has no place in that encoding")
        flat = np.ascontiguousarray(output, "f4").ravel()
        # Both columns have a row per element, so a tiny tensor has room for few dimensions. Surplus dimensions of
        # size 1 are dropped, and null fills unused rows.
        shape = list(output.shape)
        while len(shape) > flat.size:
            shape.remove(1)
        padded = pa.array(shape + [None] * (flat.size - len(shape)), pa.int32())
        batches.append(pa.RecordBatch.from_arrays([pa.array(flat), padded], schema=_RESULT))
    return _to_base64(batches)


def decode_result(value: str | bytes) -> list[Array]:
    """Decode a result from `encode_result`; refuse any other text."""
    outputs = []
    for batch in _from_base64(value.encode() if isinstance(value, str) else value):
        data = batch.column("data").to_numpy(zero_copy_only=False).astype("f4")
        shape = [d for d in batch.column("shape").to_pylist() if d]
        outputs.append(data.reshape(shape) if math.prod(shape) == data.size else data)
    return outputs


def _tensor_column(rows: Sequence[object]) -> pa.Array:
    cells = [dict.fromkeys(_LISTS) | {name: row} for name, row in zip(_LISTS, rows)]
    return pa.array(cells, _TENSOR)


def _to_base64(batches: list[pa.RecordBatch]) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode()


def _from_base64(data: bytes) -> list[pa.RecordBatch]:
    try:
        raw = base64.b64decode(data, validate=True)
    except ValueError as error:
        raise InvalidInput(f"field 'data' ({len(data)} bytes, starts {data[:16]!r}) is not base64: {error}") from None
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
        return Image(base64.b64decode(text, validate=True))
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
    array: Array = values.to_numpy(zero_copy_only=False)
    return array.astype("f4", copy=False) if pa.types.is_floating(values.type) else array
