"""`graph_meta.json`: the names of a TensorFlow graph's inputs and outputs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cluster_serving.job.models.tensorflow.session import tensor_name
from cluster_serving.protocol.errors import ModelError

FILE = "graph_meta.json"

_EXAMPLE = '{"input_names": ["x:0"], "output_names": ["y:0"]}'
_KEYS = {"input": ("input_names", "inputNames"), "output": ("output_names", "outputNames")}


def read(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Read a `graph_meta.json`; other keys than the two do not matter.

    Returns:
        Name → name of the tensor ("x" → "x:0"), in the order of the file, of the inputs and of the outputs.

    Raises:
        ModelError: It is not such a file; the message has an example.
    """
    try:
        meta: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}; it should be like {_EXAMPLE}") from error
    inputs, outputs = (_names(path, meta, kind) for kind in ("input", "output"))
    return keys(inputs), keys(outputs)


def keys(names: Iterable[str]) -> dict[str, str]:
    """Name → name of the tensor: "x" and "x:0" are the tensor "x:0", called "x"; "x:1" is called "x:1"."""
    return {name.removesuffix(":0"): tensor_name(name) for name in names}


def _names(path: Path, meta: Any, kind: str) -> list[str]:
    names = next((meta[key] for key in _KEYS[kind] if key in meta), None) if isinstance(meta, dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise ModelError(f"{path} does not list the {kind}s as {_KEYS[kind][0]!r}; it should be like {_EXAMPLE}")
    return names
