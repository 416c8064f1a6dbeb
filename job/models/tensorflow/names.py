"""Names of the inputs and outputs of a TensorFlow graph: those in `graph_meta.json`, or found in the graph."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cluster_serving.job.models.tensorflow.session import has_tensor, tensor_name
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError

META_FILE = "graph_meta.json"
"""File with the names of a graph's inputs and outputs."""

_EXAMPLE = '{"input_names": ["x:0"], "output_names": ["y:0"]}'
_KEYS = {"input": ("input_names", "inputNames"), "output": ("output_names", "outputNames")}
_PARTS_OF_TRAINING = ("gradients", "save", "report_uninitialized")
_LIKELY_OUTPUTS = {"Softmax", "Sigmoid", "ArgMax", "BiasAdd", "AddV2", "Identity"}
_MAX_LISTED = 10


def read_meta(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return inputs and outputs of a `graph_meta.json` in its order: name → name of the tensor ("x" → "x:0").

    Raises:
        ModelError: If the file is not such a file. The message has an example.
    """
    try:
        meta: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}; it should be like {_EXAMPLE}") from error
    inputs, outputs = (_names(path, meta, kind) for kind in ("input", "output"))
    return keys(inputs), keys(outputs)


def keys(names: Iterable[str]) -> dict[str, str]:
    """Return name → name of the tensor: "x" and "x:0" are the tensor "x:0", called "x"; "x:1" is called "x:1"."""
    return {name.removesuffix(":0"): tensor_name(name) for name in names}


def _names(path: Path, meta: Any, kind: str) -> list[str]:
    names = next((meta[key] for key in _KEYS[kind] if key in meta), None) if isinstance(meta, dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise ModelError(f"{path} does not list the {kind}s as {_KEYS[kind][0]!r}; it should be like {_EXAMPLE}")
    return names


def found_names(path: Path, graph: Any, options: ModelOptions) -> tuple[dict[str, str], dict[str, str]]:
    """Return inputs and outputs of a graph as `read_meta` does: its only end, and the placeholders that it needs.

    If the options name outputs, the inputs are those that they need.

    Raises:
        ModelError: If the graph has several ends, or none, and the options do not name the outputs.
    """
    ends = _find_outputs(path, graph, bool(options.outputs))
    wanted = [name for name in map(tensor_name, options.outputs) if has_tensor(graph, name)]
    return keys(_placeholders(graph, wanted or ends)), keys(ends)


def _find_outputs(path: Path, graph: Any, is_optional: bool) -> list[str]:
    """Return the name of the one tensor with a row per record that depends on placeholders and feeds no other node.

    `is_optional` is True if the options name the outputs; then several such tensors, or none, are no error.
    """
    computed = [
        tensor
        for operation in graph.get_operations()
        if operation.type != "Placeholder" and not operation.name.startswith(_PARTS_OF_TRAINING)
        for tensor in operation.outputs
        if _may_be_batch(tensor) and _needs(tensor)
    ]
    ends = [tensor.name for tensor in computed if not tensor.consumers()]
    if len(ends) == 1:
        return ends
    if is_optional:
        return []
    names = ends or [tensor.name for tensor in computed if tensor.op.type in _LIKELY_OUTPUTS]
    raise ModelError(
        f"{path} does not say what its output is: name it in `outputs`, or in a {META_FILE} beside it. "
        f"It may be one of {', '.join(names[-_MAX_LISTED:]) or 'none'}"
    )


def _placeholders(graph: Any, outputs: Iterable[str]) -> list[str]:
    """Return the names of the placeholders that the outputs need, in the order of the graph."""
    needed: set[str] = set()
    for name in outputs:
        needed |= _needs(graph.get_tensor_by_name(name))
    return [operation.name for operation in graph.get_operations() if operation.name in needed]


def _needs(tensor: Any) -> set[str]:
    """Return the names of the placeholders from which a tensor is computed."""
    placeholders, waiting, seen = set(), [tensor.op], {tensor.op.name}
    while waiting:
        operation = waiting.pop()
        if operation.type == "Placeholder":
            placeholders.add(operation.name)
        for source in [tensor.op for tensor in operation.inputs] + list(operation.control_inputs):
            if source.name not in seen:
                seen.add(source.name)
                waiting.append(source)
    return placeholders


def _may_be_batch(tensor: Any) -> bool:
    return tensor.shape.rank is None or (tensor.shape.rank > 0 and tensor.shape[0] is None)
