"""The outputs of one record as they are sent: arrays, texts, and JSON documents."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from cluster_serving.protocol.errors import InferenceFailed
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.values.number_lists import own_digits

_SHORT = {"float32": "f4", "float16": "f2", "bfloat16": "f4"}
"""Dtypes of floating-point numbers that have fewer digits than Python's, of numpy and PyTorch → numpy's."""


def pack(outputs: Mapping[str, Any]) -> tuple[dict[str, Array], list[str]]:
    """Return outputs as arrays, and the names of those that are JSON documents: dict, list, tuple and None.

    Raises:
        InferenceFailed: If there are no outputs.
        TypeError: If a value cannot be sent.
    """
    arrays, documents = {}, []
    for name, value in outputs.items():
        if type(value) is np.ndarray:
            arrays[str(name)] = value
            continue
        if isinstance(value, dict | list | tuple) or value is None:
            documents.append(name)
            value = json.dumps(value, default=_plain)
        arrays[str(name)] = np.asarray(value, object if isinstance(value, str) else None)
    if not arrays:
        raise InferenceFailed("the handler returned no outputs")
    return arrays, documents


def _plain(value: Any) -> Any:
    """Return a value within a JSON document that Python's own encoder does not know."""
    if hasattr(value, "tolist"):
        # Tensors of PyTorch have such a method, too.
        dtype = _SHORT.get(str(getattr(value, "dtype", "")).rpartition(".")[2])
        return own_digits(np.asarray(value.tolist(), dtype)) if dtype else value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be sent as JSON")
