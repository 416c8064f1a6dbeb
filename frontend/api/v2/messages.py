"""Requests and responses of v2 as protobuf messages.

A request that does not follow the protocol raises `InvalidInput`; one that holds too much, `RequestTooLarge`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cluster_serving.frontend import proto
from cluster_serving.frontend.api.v2 import datatypes
from cluster_serving.frontend.api.v2.datatypes import BYTES
from cluster_serving.frontend.api.v2.request import (
    InferRequest,
    InferResponse,
    RequestedOutput,
    classes_of,
    refuse_shared_memory,
)
from cluster_serving.frontend.proto import inference
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import MAX_DIMENSIONS, MAX_INPUTS, Array

_CONTENTS = {
    "BOOL": ("bool_contents", "?"),
    "INT8": ("int_contents", "i8"),
    "INT16": ("int_contents", "i8"),
    "INT32": ("int_contents", "i8"),
    "INT64": ("int64_contents", "i8"),
    "UINT8": ("uint_contents", "u8"),
    "UINT16": ("uint_contents", "u8"),
    "UINT32": ("uint_contents", "u8"),
    "UINT64": ("uint64_contents", "u8"),
    "FP32": ("fp32_contents", "f4"),
    "FP64": ("fp64_contents", "f8"),
    BYTES: ("bytes_contents", "O"),
}
"""Datatype → field of `InferTensorContents`, and the dtype that reads it; other datatypes travel as raw bytes only."""

# The wire format of protobuf: all fields of a request are length-delimited.
_DELIMITED, _MAX_VARINT = 2, 10
_TENSORS = frozenset(
    inference.ModelInferRequest.DESCRIPTOR.fields_by_name[name].number for name in ("inputs", "outputs")
)
_RAW = inference.ModelInferRequest.DESCRIPTOR.fields_by_name["raw_input_contents"].number
_EMPTY_RAW = bytes([_RAW << 3 | _DELIMITED, 0])
_MAX_FIELDS = 4 * MAX_INPUTS
_MAX_DESCRIBED = 4096
"""Most bytes of tensors that are read at once: those of a request with raw contents, which describe them."""
_CONTENT = 8
"""Cost of a byte of typed contents that are read, and of a number that is written."""


def decode(message: Any) -> InferRequest:
    """Read a `ModelInferRequest`; tensors of raw numbers are views of the message."""
    # Checked before any tensor is read: a message has room for millions.
    if max(len(message.inputs), len(message.outputs)) > MAX_INPUTS:
        raise InvalidInput(f"the request names more than {MAX_INPUTS} inputs or outputs")
    raw: Sequence[bytes] = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise InvalidInput(f"the request has {len(message.inputs)} inputs and {len(raw)} raw_input_contents")
    inputs: dict[str, Array] = {}
    for index, tensor in enumerate(message.inputs):
        name: str = tensor.name
        if not name or name in inputs:
            raise InvalidInput(f"input {index} has no name of its own: {name[:64]!r}")
        datatype, shape = datatypes.check(name, tensor.datatype, list(tensor.shape[: MAX_DIMENSIONS + 1]))
        refuse_shared_memory(name, tensor.parameters)
        if not raw:
            inputs[name] = _from_contents(name, datatype, shape, tensor.contents)
        elif tensor.HasField("contents"):
            raise InvalidInput(f"input {name!r} has both contents and raw_input_contents; expected one of them")
        else:
            inputs[name] = datatypes.from_raw(name, datatype, shape, raw[index])
    outputs = []
    for tensor in message.outputs:
        refuse_shared_memory(tensor.name, tensor.parameters)
        classes = _parameters(tensor.parameters).get("classification")
        outputs.append(RequestedOutput(tensor.name, classes_of(tensor.name, classes)))
    return InferRequest(inputs, outputs, message.id, _parameters(message.parameters))


def envelope(text: bytes) -> tuple[Any, int]:
    """Read a `ModelInferRequest` without its tensors, at little cost even if it has many.

    Returns:
        The message, with empty raw contents and without large tensors; and the cost of reading the whole, for
        `Offload.run`. Protobuf makes an object of each tensor, which takes far more memory than its bytes.
    """
    kept: list[bytes] = []
    described: list[bytes] = []
    tensors = 0
    for count, (number, start, end) in enumerate(_fields(text)):
        if count == _MAX_FIELDS:
            raise RequestTooLarge(f"the request has more than {_MAX_FIELDS} fields")
        if number == _RAW:
            kept.append(_EMPTY_RAW)
        elif number in _TENSORS:
            tensors += end - start
            if tensors <= _MAX_DESCRIBED:
                described.append(text[start:end])
        else:
            kept.append(text[start:end])
    if tensors > _MAX_DESCRIBED:
        return proto.parse(inference.ModelInferRequest, b"".join(kept)), _CONTENT * tensors
    message = proto.parse(inference.ModelInferRequest, b"".join(kept + described))
    texts = [tensor.shape for tensor in message.inputs if tensor.datatype == BYTES]
    counts = (math.prod(shape[:MAX_DIMENSIONS]) for shape in texts)
    return message, _CONTENT * tensors + sum(datatypes.text_cost(max(0, count)) for count in counts)


def parse(text: bytes) -> InferRequest:
    """Read the bytes of a `ModelInferRequest`; see `decode`."""
    return decode(proto.parse(inference.ModelInferRequest, text))


def encoding_cost(response: InferResponse, raw: bool) -> int:
    """Return the cost of writing a response, for `Offload.run`: raw numbers are copied at once."""
    arrays = response.outputs.values()
    texts = sum(datatypes.text_cost(array.size) for array in arrays if array.dtype == object)
    return texts if raw else texts + _CONTENT * sum(array.size for array in arrays)


def encode(response: InferResponse, raw: bool) -> Any:
    """Write a `ModelInferResponse`, with raw bytes or typed contents; with a tensor of FP16 always with raw bytes."""
    names = {name: datatypes.of_output(name, array) for name, array in response.outputs.items()}
    raw = raw or any(datatype not in _CONTENTS for datatype in names.values())
    message = inference.ModelInferResponse(model_name=response.model, model_version=response.version, id=response.id)
    for name, array in response.outputs.items():
        tensor = message.outputs.add(name=name, datatype=names[name], shape=array.shape)
        if raw:
            message.raw_output_contents.append(datatypes.to_raw(array, names[name]))
        else:
            elements = datatypes.contents(array) if names[name] == BYTES else array.ravel().tolist()
            getattr(tensor.contents, _CONTENTS[names[name]][0]).extend(elements)
    return message


def _fields(text: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of each field of a message whose fields are all length-delimited."""
    position = 0
    while position < len(text):
        start = position
        key, position = _varint(text, position)
        size, position = _varint(text, position)
        position += size
        if key & 7 != _DELIMITED or position > len(text):
            raise InvalidInput("the message is not a ModelInferRequest")
        yield key >> 3, start, position


def _varint(text: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(text[position : position + _MAX_VARINT]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, position + index + 1
    raise InvalidInput("the message is not a ModelInferRequest")


def _from_contents(name: str, datatype: str, shape: tuple[int, ...], contents: Any) -> Array:
    if datatype not in _CONTENTS:
        raise InvalidInput(f"input {name!r} is {datatype}, for which only raw_input_contents can be used")
    field, dtype = _CONTENTS[datatype]
    filled = [descriptor.name for descriptor, _ in contents.ListFields()]
    if filled not in ([field], []):
        raise InvalidInput(f"input {name!r} is {datatype} and has {', '.join(filled)}; expected {field}")
    values = getattr(contents, field)
    if datatype == BYTES:
        datatypes.check_count(name, len(values))
        return datatypes.from_bytes(name, shape, list(values))
    return datatypes.from_numbers(name, datatype, shape, np.fromiter(values, dtype, len(values)))


def _parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for key, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        values[key] = None if kind is None else getattr(parameter, kind)
    return values
