"""Examples of requests to a model: values of the right dtypes and shapes."""

import base64
import json
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster_serving.frontend.api.model_docs.schemas import image_size
from cluster_serving.frontend.api.openai import completions, embeddings
from cluster_serving.frontend.api.openai.parameters import DEFAULTS, NEUTRAL
from cluster_serving.frontend.api.v2 import datatypes
from cluster_serving.protocol.slots import SlotReport, TensorSpec

MESSAGES = [{"role": "user", "content": "text"}]
"""The messages of a chat."""

_MOST_NUMBERS = 10_000
"""Most numbers of an example; a document with more would be slow to read."""

_FEW_NUMBERS = 1000
"""Numbers from which an image is a file in the example."""

_SIDE = 64
"""Width and height of an image whose size is free."""


def bodies(report: SlotReport) -> dict[str, Any]:
    """Return a body that a model answers, by the name of its schema; empty if it would be too long to read."""
    specs = report.inputs
    row, fields, tensors = record(specs, report.already_batched), record(specs), v2_inputs(specs)
    if not (row and fields and tensors):
        return {}
    return {
        "Instances": {"instances": [row]},
        "V1Request": {"instances": [next(iter(fields.values())) if len(fields) == 1 else fields]},
        "V2InferRequest": {"inputs": tensors},
    }


def openai_bodies(report: SlotReport, model: str) -> dict[str, Any]:
    """Return a body of OpenAI's API that a model answers, by the name of the operation."""
    sent: dict[str, Any] = {
        "completions": {"prompt": "text"},
        "chat": {"messages": MESSAGES},
        "embeddings": {"input": "text"},
    }
    taken = {*completions.takes(report), *(["embeddings"] if embeddings.takes(report) else [])}
    return {operation: {"model": model, **body} for operation, body in sent.items() if operation in taken}


def record(specs: Sequence[TensorSpec], batched: bool = False) -> dict[str, Any] | None:
    """Return a value for each input, `batched` or not; None if they would be too long, or a shape is not known."""
    values = {spec.name: _value(spec, batched) for spec in specs}
    return None if None in values.values() else values


def v2_inputs(specs: Sequence[TensorSpec]) -> list[dict[str, Any]] | None:
    """Return a v2 tensor with one record for each input; None as for `record`."""
    tensors = [_v2_tensor(spec) for spec in specs]
    return None if None in tensors else [tensor for tensor in tensors if tensor]


def _value(spec: TensorSpec, batched: bool) -> Any:
    if (file := _image(spec)) is not None:
        return {"b64": file}
    if (shape := _shape(spec)) is None:
        return None
    value = _element(spec)
    for size in reversed((1, *shape) if batched else shape):
        value = [value] * size
    return value


def _v2_tensor(spec: TensorSpec) -> dict[str, Any] | None:
    if (file := _image(spec)) is not None:
        base64_text = {"parameters": {"content_type": "base64"}, "data": [file]}
        return {"name": spec.name, "datatype": datatypes.BYTES, "shape": [1]} | base64_text
    if (shape := _shape(spec)) is None:
        return None
    datatype = datatypes.of_name(spec.dtype) or "FP32"
    data = [_element(spec)] * math.prod(shape)
    return {"name": spec.name, "datatype": datatype, "shape": [1, *shape], "data": data}


def _shape(spec: TensorSpec) -> tuple[int, ...] | None:
    """Return the shape of a record, with 1 for sizes that are free; None if it is not known, or too large."""
    if spec.record_shape is None:
        return None
    shape = tuple(1 if size is None else size for size in spec.record_shape)
    return shape if math.prod(shape) <= _MOST_NUMBERS else None


def _element(spec: TensorSpec) -> Any:
    """Return a value of an input: of a parameter of OpenAI's API the default, and of a chat its messages as JSON."""
    dtype, name = spec.dtype, spec.name
    if dtype == "str":
        return json.dumps(MESSAGES) if name == "messages" else "" if name in NEUTRAL else _default(name, "text")
    if dtype == "bool":
        return _default(name, False)
    if type(known := DEFAULTS.get(name)) in (int, float):
        return known
    return 0 if dtype and np.dtype(dtype).kind in "iu" else 0.5


def _default(name: str, other: Any) -> Any:
    """Return the default of a parameter of OpenAI's API, if it has the type of `other`; else `other`."""
    known = DEFAULTS.get(name)
    return known if type(known) is type(other) else other


def _image(spec: TensorSpec) -> str | None:
    """Return an image file in base64 for an input that numbers would make too long; None for others."""
    if (size := image_size(spec)) is None:
        return None
    width, height = (side or _SIDE for side in size)
    if None not in size and 3 * width * height <= _FEW_NUMBERS:
        return None
    return base64.b64encode(_png(width, height)).decode()


def _png(width: int, height: int) -> bytes:
    """Return a black image of three channels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(height * (1 + 3 * width)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
