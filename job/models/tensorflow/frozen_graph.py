"""TensorFlow frozen graph: a `*.pb` with constants instead of variables, and `graph_meta.json` that names its ends."""

from __future__ import annotations

from typing import Any

from cluster_serving.job.models.base import Model, cause
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.tensorflow import graph_meta
from cluster_serving.job.models.tensorflow.session import SessionModel, has_tensor, tf
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError

_VARIABLES = {"Variable", "VariableV2", "VarHandleOp"}


def load(files: ModelFiles, options: ModelOptions) -> Model:
    """Load a frozen graph; see `cluster_serving.job.models.load_model`."""
    return FrozenGraph(files, options)


class FrozenGraph(SessionModel):
    """A frozen graph; inputs and outputs are in the order of `graph_meta.json`, and have its names without ":0"."""

    def _build(self, session: Any, files: ModelFiles, options: ModelOptions) -> tuple[dict[str, str], dict[str, str]]:
        path, meta = files.paths
        graph = _read(path)
        tf.graph_util.import_graph_def(graph, name="")
        inputs, outputs = graph_meta.read(meta)
        for name in [*inputs.values(), *outputs.values()]:
            if not has_tensor(session.graph, name):
                ends = ", ".join(node.name for node in graph.node if node.op == "Placeholder") or "none"
                raise ModelError(f"{meta} names the tensor {name!r}, which {path} lacks; its placeholders are {ends}")
        return inputs, outputs


def _read(path: Any) -> Any:
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
