"""Conversion of inputs and results to the types of the original's client."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Union

import numpy as np

from cluster_serving.client.result import Result
from cluster_serving.client.sending.convert import to_input
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.inputs import Array, Image, Input, SparseTensor
from cluster_serving.protocol.original.arrow import ERROR_VALUE
from cluster_serving.protocol.values.number_lists import float32_if_exact

MISSING = "[]"
"""The original's value for a missing result."""

OriginalResult = Union[Array, list[Array], str]
"""One output, several outputs, or "[]" or "NaN"."""

# Number of channels → colour type of PNG, and PNG's order of OpenCV's channels.
_CHANNELS = {1: (0, [0]), 3: (2, [2, 1, 0]), 4: (6, [2, 1, 0, 3])}


def as_sent(values: Mapping[str, object]) -> dict[str, Input]:
    """Convert inputs as the original's client does.

    Numbers become float32, sparse indices and shapes integers, an array under "path" an image.
    """
    inputs: dict[str, Input] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and isinstance(value.get("path"), np.ndarray):
            inputs[name] = encode_png(name, value["path"])
            continue
        sent = to_input(name, _with_integers(value))
        if isinstance(sent, SparseTensor):
            sent = SparseTensor(sent.indices, _as_float32(sent.values), sent.shape)
        inputs[name] = _as_float32(sent) if isinstance(sent, np.ndarray) else sent
    return inputs


def _with_integers(value: object) -> object:
    """Return a sparse tensor with integers as indices and shape, also with a row per value; other values unchanged."""
    if not (isinstance(value, list) and len(value) == 3 and all(isinstance(item, np.ndarray) for item in value)):
        return value
    indices, shape = (
        item.astype("i8") if item.dtype.kind == "f" and (np.trunc(item) == item).all() else item for item in value[::2]
    )
    by_value = indices.shape == (value[1].size, shape.size) != (shape.size, value[1].size)
    return [indices.T if by_value else indices, value[1], shape]


def _as_float32(array: Array) -> Array:
    if array.dtype.kind not in "biuf" or array.dtype == np.float32:
        return array
    if array.dtype.kind != "f":
        # Large integers change as float32. The original sent them so; here a model of integers gets them unchanged.
        return float32_if_exact(array)
    with np.errstate(over="ignore"):
        return array.astype("f4")


def as_original(result: Result | None) -> OriginalResult:
    """Convert a result to the original's types: float32 arrays, and rankings as rows of class and value."""
    if result is None:
        return MISSING
    outputs = result.outputs.values()
    arrays = [array.astype("f4", copy=False) if array.dtype.kind in "biuf" else array for array in outputs]
    return arrays[0] if len(arrays) == 1 else arrays


def failed(error: ServingError) -> str:
    """Return the original's value for a failed request, or raise an error that concerns Redis."""
    if error.code in ("REDIS_UNAVAILABLE", "QUEUE_FULL"):
        raise error
    return ERROR_VALUE


def encode_png(name: str, pixels: Array) -> Image:
    """Encode pixels as a PNG file, without an imaging library, to keep the client light.

    The pixels are as from `cv2.imread`: grey (h, w), BGR (h, w, 3) or BGRA (h, w, 4). Their numbers are rounded
    and limited to 0 to 255.
    """
    planes = pixels[..., np.newaxis] if pixels.ndim == 2 else pixels
    if planes.ndim != 3 or planes.shape[2] not in _CHANNELS or not planes.size or planes.dtype.kind not in "biuf":
        raise InvalidInput(
            f"input {name!r} is {pixels.dtype} of shape {list(pixels.shape)}; expected an image (height, width, 3)"
        )
    height, width, channels = planes.shape
    colour_type, order = _CHANNELS[channels]
    rows = np.clip(np.rint(planes[..., order]), 0, 255).astype("u1").reshape(height, -1)
    # Every row begins with the number of its filter: 0 for none.
    raw = np.concatenate([np.zeros((height, 1), "u1"), rows], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 1)), (b"IEND", b""))
    return Image(b"\x89PNG\r\n\x1a\n" + b"".join(_framed(kind, data) for kind, data in chunks))


def _framed(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
