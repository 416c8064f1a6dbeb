"""The error for an index that ONNX Runtime refuses, if an input has it."""

import re
from collections.abc import Mapping

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array

_OUTSIDE = re.compile(r"\bidx=(-?\d+) must be within the inclusive range \[(-?\d+),(-?\d+)\]")


def refusal(message: str, record: Mapping[str, Array]) -> InvalidInput | None:
    """Return the error that names the input with the index of a message; None unless a single input has it."""
    found = _OUTSIDE.search(message)
    if found is None:
        return None
    names = [name for name, values in record.items() if values.dtype.kind in "iu" and (values == int(found[1])).any()]
    if len(names) != 1:
        return None
    return InvalidInput(
        f"input {names[0]!r} has {found[1]}, and the model takes whole numbers from {found[2]} to {found[3]} there"
    )
