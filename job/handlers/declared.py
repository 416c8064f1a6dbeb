"""Types of inputs and outputs as a handler declares them."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from cluster_serving.job.handlers.records import Record
from cluster_serving.job.models.base import TensorSpec
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.signature import DTYPES

_SYNTAX = re.compile(r"(\w+)(?:\[([^\]]*)\])?")
_EXPECTED = '"image", or a dtype and a shape without the batch dimension, such as "float32[3, ?]", "int64" or "str"'


def specs(declared: Mapping[str, str], where: str, channels: int = 3) -> list[TensorSpec]:
    """Return the inputs or outputs that a handler declares.

    Args:
        declared: Name → type; see `handler.Handler`.
        where: Attribute and handler, for messages.
        channels: Channels of an image.

    Raises:
        ModelError: If a type cannot be read.
    """
    if not isinstance(declared, Mapping):
        raise ModelError(f"{where} is {declared!r}; expected a dict of names and types")
    return [_spec(name, text, where, channels) for name, text in declared.items()]


def nothing(outputs: Sequence[TensorSpec] | None) -> Record:
    """Return the answer of a generator that ends a record before its first piece.

    Of declared outputs, texts are empty, and arrays have no pieces. Without any, there is an empty `text`.
    """
    if not outputs:
        return {"text": ""}
    return {spec.name: "" if spec.dtype == "str" and spec.record_shape == () else _no_pieces(spec) for spec in outputs}


def _no_pieces(spec: TensorSpec) -> Array:
    return np.zeros((0, *(size or 0 for size in spec.record_shape or ())), spec.numpy_dtype)


def _spec(name: object, text: object, where: str, channels: int) -> TensorSpec:
    if text == "image":
        return TensorSpec(str(name), "uint8", (None, None, None, channels))
    match = _SYNTAX.fullmatch(text.strip()) if isinstance(text, str) else None
    if match and match[1] in {*DTYPES, "str"}:
        if match[2] is not None and match[2].strip() == "...":
            return TensorSpec(str(name), match[1], None)
        sizes = [size.strip() for size in match[2].split(",")] if (match[2] or "").strip() else []
        if all(size == "?" or size.isdecimal() for size in sizes):
            return TensorSpec(str(name), match[1], (None, *(None if size == "?" else int(size) for size in sizes)))
    raise ModelError(f"{where} has {text!r} for {name!r}; expected {_EXPECTED}")
