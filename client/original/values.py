"""Conversion of inputs and results to the types of the original's client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Union

import numpy as np

from cluster_serving.client.convert import to_input
from cluster_serving.client.original.png import encode_png
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Array, Input, SparseTensor
from cluster_serving.protocol.original.arrow import ERROR_VALUE
from cluster_serving.protocol.results import Result

MISSING = "[]"
"""The original's value for a missing result."""

OriginalResult = Union[Array, list[Array], str]
"""One output, several outputs, or "[]" or "NaN"."""


def as_sent(values: Mapping[str, object]) -> dict[str, Input]:
    """Convert inputs as the original's client does: numbers to float32, an array under "path" to an image."""
    inputs: dict[str, Input] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and isinstance(value.get("path"), np.ndarray):
            inputs[name] = encode_png(name, value["path"])
            continue
        sent = to_input(name, value)
        if isinstance(sent, SparseTensor):
            sent = SparseTensor(sent.indices, _as_float32(sent.values), sent.shape)
        inputs[name] = _as_float32(sent) if isinstance(sent, np.ndarray) else sent
    return inputs


def _as_float32(array: Array) -> Array:
    if array.dtype.kind not in "biuf" or array.dtype == np.float32:
        return array
    with np.errstate(over="ignore"):
        numbers = array.astype("f4")
    # Large integers change as float32. The original sent them so; here a model of integers gets them unchanged.
    return numbers if array.dtype.kind == "f" or np.array_equal(numbers, array) else array


def as_original(result: Result | None) -> OriginalResult:
    """Convert a result to the original's types: float32 arrays, and rankings as rows of class and value."""
    if result is None:
        return MISSING
    if isinstance(result, str):
        return result
    if isinstance(result, list):
        if all(isinstance(item, tuple) for item in result):
            return np.array(result, "f4").reshape(-1, 2)
        return [np.array(item, "f4").reshape(-1, 2) if isinstance(item, list) else _float(item) for item in result]
    return _float(result)


def _float(output: Any) -> Array:
    array = np.asarray(output)
    return array.astype("f4", copy=False) if array.dtype.kind in "biuf" else array


def failed(error: ServingError) -> str:
    """Return the original's value for a failed request, or raise an error that concerns Redis."""
    if error.code in ("REDIS_UNAVAILABLE", "QUEUE_FULL"):
        raise error
    return ERROR_VALUE
