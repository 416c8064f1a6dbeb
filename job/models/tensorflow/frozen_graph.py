"""TensorFlow frozen graph: a `*.pb` with constants instead of variables, and `graph_meta.json` with tensor names."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cluster_serving.job.models.base import cause
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.loops import has_operator
from cluster_serving.job.models.tensorflow.session import SessionModel, has_tensor, tensor_name, tf, with_operators
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError

META_FILE = "graph_meta.json"
"""File with the names of a graph's inputs and outputs."""

_EXAMPLE = '{"input_names": ["x:0"], "output_names": ["y:0"]}'
_KEYS = {"input": ("input_names", "inputNames"), "output": ("output_names", "outputNames")}
_VARIABLES = {"Variable", "VariableV2", "VarHandleOp"}


class FrozenGraph(SessionModel):
    """A frozen graph. Inputs and outputs have the order and the names of `graph_meta.json`, without ":0"."""

    def _build(self, session: Any, files: ModelFiles, options: ModelOptions) -> tuple[dict[str, str], dict[str, str]]:
        path, meta = files.paths
        self.careful = has_operator(path, self._LOOPS)
        graph = _read(path)
        with_operators(lambda: tf.graph_util.import_graph_def(graph, name=""), path)
        inputs, outputs = read_meta(meta)
        for name in [*inputs.values(), *outputs.values()]:
            if not has_tensor(session.graph, name):
                ends = ", ".join(node.name for node in graph.node if node.op == "Placeholder") or "none"
                raise ModelError(f"{meta} names the tensor {name!r}, which {path} lacks; its placeholders are {ends}")
        return inputs, outputs


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


def _read(path: Path) -> Any:
    graph = tf.compat.v1.GraphDef()
    try:
        graph.ParseFromString(path.read_bytes())
    except Exception as error:  # protobuf's DecodeError; which class that is depends on its implementation
        raise ModelError(f"{path} is not a TensorFlow graph: {cause(error)}") from error
    if not graph.node:
        raise ModelError(f"{path} is not a TensorFlow graph: it has no nodes")
    variables = [node.name for node in graph.node if node.op in _VARIABLES]
    if variables:
        raise ModelError(
            f"{path} is not frozen: it has variables ({variables[0]!r} and {len(variables) - 1} more) without values. "
            f"Freeze it with tf.compat.v1.graph_util.convert_variables_to_constants, or serve its checkpoint"
        )
    return graph
