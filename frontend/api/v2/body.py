"""Bodies of v2 over HTTP: JSON, and behind it the binary tensor data."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from cluster_serving.frontend.api.v2 import datatypes
from cluster_serving.frontend.api.v2.datatypes import BYTES
from cluster_serving.frontend.api.v2.service import InferRequest, InferResponse, RequestedOutput, classes_of
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.original.json import check_size

HEADER_LENGTH = "Inference-Header-Content-Length"
"""HTTP header: bytes of JSON in a body with binary tensor data."""

_MAX_NUMBER_CHARACTERS = 20


def decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Undo the Content-Encoding of a body.

    Args:
        body: The body.
        encoding: `gzip`, `deflate`, `identity` or empty.
        max_bytes: Most bytes that may come out.

    Raises:
        InvalidInput: The encoding is another one, or the body is not of it.
        RequestTooLarge: More would come out.
    """
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise InvalidInput(f"the body has Content-Encoding {encoding[:32]!r}; expected gzip or deflate")
    # 32: gzip or zlib, whichever its first bytes say.
    stream = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
    try:
        data = stream.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise InvalidInput(f"the body is not {encoding}: {error}") from None
    if len(data) > max_bytes:
        raise RequestTooLarge(f"the body has more than {max_bytes} bytes when it is decompressed")
    if not stream.eof:
        raise InvalidInput(f"the body is not {encoding}: it ends early")
    return data


def json_length(body: bytes, header_length: str | None) -> int:
    """Bytes of JSON in the body of a request; 0 if `decode` refuses it.

    Args:
        body: The body.
        header_length: `HEADER_LENGTH`; None if all is JSON.
    """
    try:
        return len(_parts(body, header_length)[0])
    except InvalidInput:
        return 0


def json_size(response: InferResponse, request: InferRequest) -> int:
    """About how many bytes of a response become JSON."""
    binary = _binary(response, request)
    return sum(array.nbytes for name, array in response.outputs.items() if not binary[name])


def decode(body: bytes, header_length: str | None) -> InferRequest:
    """Read the body of a request; binary numbers are views of it.

    Args:
        body: JSON, and behind it the binary data of the inputs with a `binary_data_size`, in their order.
        header_length: `HEADER_LENGTH`; None if all is JSON.

    Raises:
        InvalidInput: It is not such a body; the message says where.
        RequestTooLarge: Its JSON holds too many values.
    """
    json, binary = _parts(body, header_length)
    check_size(body[: len(json)])
    try:
        content = orjson.loads(json)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    content = _mapping("the body", content)
    parameters = _mapping("parameters", content.get("parameters") or {})
    inputs: dict[str, Array] = {}
    position = 0
    for tensor in _tensors("inputs", content.get("inputs")):
        name = tensor["name"]
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
                f"input {name!r} has binary_data_size {str(size)[:32]}; the body has {len(binary) - position} more"
            )
        inputs[name] = datatypes.from_raw(name, datatype, shape, binary[position : position + size])
        position += size
    if position < len(binary):
        raise InvalidInput(f"the body has {len(binary) - position} bytes of binary data that belong to no input")
    identifier = content.get("id", "")
    if not isinstance(identifier, str):
        raise InvalidInput(f"the request's id is {str(identifier)[:64]}; expected a string")
    asked = content.get("outputs")
    outputs = [_requested(tensor) for tensor in _tensors("outputs", asked)] if asked else []
    return InferRequest(inputs, outputs, identifier, parameters)


def encode(response: InferResponse, request: InferRequest) -> tuple[bytes, int | None]:
    """Write the body of a response, in the form that the request asks for.

    Returns:
        The body, and the bytes of its JSON if binary data follows.

    Raises:
        InferenceFailed: An output is of a dtype that v2 does not have.
    """
    binary = _binary(response, request)
    tensors: list[dict[str, Any]] = []
    data: list[bytes] = []
    for name, array in response.outputs.items():
        datatype = datatypes.of_output(name, array)
        tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if binary[name]:
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


def _binary(response: InferResponse, request: InferRequest) -> dict[str, bool]:
    """Which outputs the request asks for as binary data."""
    by_default = request.parameters.get("binary_data_output") is True
    asked = {output.name: output.binary for output in request.outputs}
    chosen = {name: asked.get(name) for name in response.outputs}
    return {name: by_default if binary is None else binary for name, binary in chosen.items()}


def _parts(body: bytes, header_length: str | None) -> tuple[memoryview, memoryview]:
    view = memoryview(body)
    if header_length is None:
        return view, view[len(body) :]
    readable = header_length.isascii() and header_length.isdecimal() and len(header_length) <= _MAX_NUMBER_CHARACTERS
    if not readable or int(header_length) > len(body):
        raise InvalidInput(
            f"the header {HEADER_LENGTH} is {header_length[:32]!r}; expected a number up to the body's, {len(body)}"
        )
    return view[: int(header_length)], view[int(header_length) :]


def _from_json(
    name: str, datatype: str, shape: tuple[int, ...], tensor: Mapping[str, Any], options: Mapping[str, Any]
) -> Array:
    values = tensor.get("data")
    if not isinstance(values, list):
        raise InvalidInput(f"input {name!r} has neither a list of data nor a binary_data_size")
    if datatype != BYTES:
        return datatypes.from_numbers(name, datatype, shape, values)
    texts = datatypes.flatten(values)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"input {name!r} is BYTES and has data of other kinds than strings")
    # As MLServer marks what JSON cannot hold.
    if options.get("content_type") != "base64":
        return datatypes.from_bytes(name, shape, [text.encode() for text in texts])
    try:
        return datatypes.from_bytes(name, shape, [base64.b64decode(text, validate=True) for text in texts])
    except (binascii.Error, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"input {name!r} has data that is not base64: {error}") from None


def _requested(tensor: Mapping[str, Any]) -> RequestedOutput:
    name = tensor["name"]
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
    options = _mapping(f"the parameters of {name!r}", tensor.get("parameters") or {})
    if "shared_memory_region" in options:
        raise InvalidInput(f"tensor {name!r} lies in shared memory, which is not supported")
    return options


def _mapping(what: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} is not a JSON object")
    return value


def _numbers(array: Array) -> Any:
    # orjson writes arrays of native order by itself, NaN and infinity as null; half floats it does not know.
    flat = np.ascontiguousarray(array).reshape(-1)
    return (
        flat.astype(np.float32) if flat.dtype == np.float16 else flat.astype(flat.dtype.newbyteorder("="), copy=False)
    )


def _texts(array: Array) -> list[str]:
    return [item.decode("utf8", "replace") if isinstance(item, bytes) else str(item) for item in array.flat]
