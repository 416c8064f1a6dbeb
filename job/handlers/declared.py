"""Types of inputs and outputs as a handler declares them."""

import re
from collections.abc import Mapping

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.protocol.errors import ModelError
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
