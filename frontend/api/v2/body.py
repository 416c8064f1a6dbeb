"""Bodies of v2 over HTTP: JSON, followed by binary tensor data.

A body that does not follow the protocol raises `InvalidInput`; one that holds too much, `RequestTooLarge`.
"""

import binascii
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import orjson

from cluster_serving.frontend.api.json_text import check_names, parse, reading_cost
from cluster_serving.frontend.api.v2 import datatypes
from cluster_serving.frontend.api.v2.datatypes import BYTES
from cluster_serving.frontend.api.v2.request import (
    InferRequest,
    InferResponse,
    RequestedOutput,
    classes_of,
    refuse_shared_memory,
)
from cluster_serving.frontend.server.offload import LARGE
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import MAX_INPUTS, Array
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from cluster_serving.protocol.values import base64_text

HEADER_LENGTH = "Inference-Header-Content-Length"
"""HTTP header: number of bytes of JSON in a body with binary tensor data."""

HEADER_LENGTH_KEY = HEADER_LENGTH.lower().encode()

_MAX_NUMBER_CHARACTERS = 20

_RAW_PARAMETERS = {"binary_data_output": True}

_MAX_SHOWN = 64

# KServe's client repeats the model of the path, which is the one that answers.
_TEXTS = ("id", "model_name", "model_version")
_FIELDS = ("inputs", "outputs", "parameters", *_TEXTS)

_FEW_TEXTS = 1 << 16
"""Bytes of binary data that have too few elements of BYTES to count."""


def json_length(body: bytes, header_length: str | None) -> int:
    """Return the number of bytes of JSON at the start of a body; without a header `HEADER_LENGTH`, all are JSON."""
    if header_length is None:
        if not body:
            raise InvalidInput("the body is empty; expected a JSON object")
        return len(body)
    readable = header_length.isascii() and header_length.isdecimal() and len(header_length) <= _MAX_NUMBER_CHARACTERS
    if not readable or int(header_length) > len(body):
        raise InvalidInput(
            f"the header {HEADER_LENGTH} is {header_length[:32]!r}; expected a number up to the body's, {len(body)}"
        )
    return int(header_length)


def cost(body: bytes, json_length: int) -> int:
    """Return the cost of reading the body of a request, for `Offload.run`.

    Binary numbers are used where they are, and cost nothing; elements of BYTES are read one by one.
    """
    json = body[:json_length]
    known = reading_cost(json)
    if known >= LARGE or len(body) - json_length < _FEW_TEXTS or b"BYTES" not in json:
        return known
    with suppress(InvalidInput):
        tensors = parse(json).get("inputs")
        for tensor in tensors if isinstance(tensors, list) else []:
            with suppress(InvalidInput, AttributeError):
                datatype, shape = datatypes.check("", tensor.get("datatype"), tensor.get("shape"))
                if datatype == BYTES:
                    known += datatypes.text_cost(math.prod(shape))
    return known


_WITH_FILE = (
    '{"inputs": [{"name": "NAME", "datatype": "BYTES", "shape": [1], "data": ["…"], '
    '"parameters": {"content_type": "base64"}}]}'
)


def decode(body: bytes, json_length: int) -> InferRequest:
    """Read the body of a request; tensors of binary numbers are views of the body.

    The JSON is followed by the binary data of the inputs that have a `binary_data_size`, in their order.
    """
    content = parse(body[:json_length], _WITH_FILE)
    check_names(content, _FIELDS)
    for key in ("inputs", "outputs"):
        if isinstance(tensors := content.get(key), list) and len(tensors) > MAX_INPUTS:
            raise InvalidInput(f"the request names {len(tensors)} {key}; at most {MAX_INPUTS} are taken")
    binary = memoryview(body)[json_length:]
    parameters = {
        # The protocol has no lists and objects here; a process would pass on millions of them.
        name: str(value)[:_MAX_SHOWN] if isinstance(value, list | dict) else value
        for name, value in _mapping("parameters", content.get("parameters")).items()
    }
    if not isinstance(parameters.get("binary_data_output"), bool | None):
        raise InvalidInput("the parameter binary_data_output is not true or false")
    inputs: dict[str, Array] = {}
    position = 0
    for tensor in _tensors("inputs", content.get("inputs")):
        name = tensor["name"]
        check_names(tensor, ("name", "datatype", "shape", "parameters", "data"), f"input {name[:64]!r}")
        if name in inputs:
            raise InvalidInput(f"the request has two inputs {name[:64]!r}")
        datatype, shape = datatypes.check(name, tensor.get("datatype"), tensor.get("shape"))
        options = _parameters(name, tensor)
        size = options.get("binary_data_size")
        if size is None:
            inputs[name] = _from_json(name, datatype, shape, tensor, options)
            continue
        if type(size) is not int or not 0 <= size <= len(binary) - position:
            raise InvalidInput(
                f"input {name!r} has binary_data_size {str(size)[:32]}; {len(binary) - position} bytes are left"
            )
        inputs[name] = datatypes.from_raw(name, datatype, shape, binary[position : position + size])
        position += size
    if position < len(binary):
        raise InvalidInput(f"the body has {len(binary) - position} bytes of binary data that belong to no input")
    for name in _TEXTS:
        if not isinstance(content.get(name), str | None):
            raise InvalidInput(f"the request's {name} is {str(content[name])[:64]}; expected a string")
    asked = content.get("outputs")
    outputs = [] if asked in (None, []) else [_requested(tensor) for tensor in _tensors("outputs", asked)]
    return InferRequest(inputs, outputs, content.get("id") or "", parameters)


def raw(body: bytes, report: SlotReport) -> InferRequest:
    """Return the request of a body that is the raw tensor of one record, as Triton takes it with the header 0.

    Its datatype and its shape are those of the only input of the model; of its sizes, one may be free. A text is the
    whole body. The outputs are binary data.
    """
    (spec, *others) = report.inputs or (TensorSpec("", "", None),)
    shape, datatype = spec.record_shape, datatypes.of_name(spec.dtype)
    free = [index for index, size in enumerate(shape or ()) if size is None]
    if others or shape is None or not datatype or (len(free) > 1 and datatype != BYTES):
        inputs = ", ".join(map(str, report.inputs)) or "inputs that it does not declare"
        raise InvalidInput(
            f"the header {HEADER_LENGTH} is 0, for the raw bytes of one input with one free size at most; the model "
            f"takes {inputs}"
        )
    if datatype == BYTES:
        array = datatypes.from_bytes(spec.name, (1,) * (1 + len(shape)), [body])
        return InferRequest({spec.name: array}, parameters=_RAW_PARAMETERS)
    sizes = [size or 1 for size in shape]
    if free:
        sizes[free[0]] = len(body) // max(1, math.prod(sizes) * datatypes.DTYPES[datatype].itemsize)
    array = datatypes.from_raw(spec.name, datatype, (1, *sizes), body)
    return InferRequest({spec.name: array}, parameters=_RAW_PARAMETERS)


def binary_outputs(request: InferRequest, names: Iterable[str]) -> frozenset[str]:
    """Return those of the outputs `names` that a request wants as binary data."""
    by_default = request.parameters.get("binary_data_output") is True
    wanted = {output.name: output.binary for output in request.outputs if output.binary is not None}
    return frozenset(name for name in names if wanted.get(name, by_default))


def encode(response: InferResponse, binary: Container[str] = ()) -> tuple[bytes, int | None]:
    """Write the body of a response, with the outputs of the names in `binary` as binary data.

    Returns:
        The body, and the number of bytes of JSON if binary data follows.
    """
    tensors: list[dict[str, Any]] = []
    data: list[bytes] = []
    for name, array in response.outputs.items():
        datatype = datatypes.of_output(name, array)
        tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if name in binary:
            raw = datatypes.to_raw(array, datatype)
            data.append(raw)
            tensor["parameters"] = {"binary_data_size": len(raw)}
        else:
            tensor["data"] = _numbers(array) if datatype != BYTES else _texts(array)
        tensors.append(tensor)
    content: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        content["id"] = response.id
    json = orjson.dumps(content | {"outputs": tensors}, option=orjson.OPT_SERIALIZE_NUMPY)
    return (b"".join((json, *data)), len(json)) if data else (json, None)


def _from_json(
    name: str, datatype: str, shape: tuple[int, ...], tensor: Mapping[str, Any], options: Mapping[str, Any]
) -> Array:
    values = tensor.get("data")
    if not isinstance(values, list):
        raise InvalidInput(f"input {name!r} has neither a list of data nor a binary_data_size")
    if datatype != BYTES:
        return datatypes.from_numbers(name, datatype, shape, values)
    texts = datatypes.flatten(values)
    # Null is a missing text, which a column of a table may have.
    if not all(text is None or isinstance(text, str) for text in texts):
        raise InvalidInput(f"input {name!r} is BYTES and has data of other kinds than strings")
    # MLServer marks bytes that are no text in this way.
    if options.get("content_type") != "base64":
        return datatypes.from_bytes(name, shape, [None if text is None else text.encode() for text in texts])
    try:
        items = [None if text is None else base64_text.decode(text) for text in texts]
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(f"input {name!r} has data that is not base64: {error}") from None
    return datatypes.from_bytes(name, shape, items)


def _requested(tensor: Mapping[str, Any]) -> RequestedOutput:
    name = tensor["name"]
    check_names(tensor, ("name", "parameters"), f"output {name[:64]!r}")
    options = _parameters(name, tensor)
    binary = options.get("binary_data")
    if binary is not None and not isinstance(binary, bool):
        raise InvalidInput(f"output {name!r} has the parameter binary_data {str(binary)[:32]}; expected true or false")
    return RequestedOutput(name, classes_of(name, options.get("classification")), binary)


def _tensors(key: str, tensors: object) -> Sequence[Mapping[str, Any]]:
    if not isinstance(tensors, list) or not tensors:
        raise InvalidInput(f"{key!r} is missing or not a list of tensors")
    for index, tensor in enumerate(tensors):
        name = _mapping(f"{key}[{index}]", tensor).get("name")
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"{key}[{index}] has no name")
    return tensors


def _parameters(name: str, tensor: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = _mapping(f"the parameters of {name!r}", tensor.get("parameters"))
    refuse_shared_memory(name, parameters)
    return parameters


def _mapping(place: str, value: object) -> Mapping[str, Any]:
    """Return an object; an empty one for null."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(f"{place} is not a JSON object")
    return value


def _numbers(array: Array) -> Any:
    # orjson writes arrays of native byte order, with null for NaN and infinity; it does not know float16.
    flat = np.ascontiguousarray(array).reshape(-1)
    dtype = np.dtype(np.float32) if flat.dtype == np.float16 else flat.dtype.newbyteorder("=")
    return flat.astype(dtype, copy=False)


def _texts(array: Array) -> list[str]:
    return [item.decode("utf8", "replace") if isinstance(item, bytes) else str(item) for item in array.flat]
