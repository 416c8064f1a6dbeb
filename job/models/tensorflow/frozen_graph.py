"""TensorFlow frozen graph: a `*.pb` with constants instead of variables, and perhaps `graph_meta.json`."""

from pathlib import Path
from typing import Any

from cluster_serving.job.models.base import cause
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.loops import has_operator
from cluster_serving.job.models.tensorflow.names import found_names, read_meta
from cluster_serving.job.models.tensorflow.session import SessionModel, has_tensor, tf, with_operators
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError

_VARIABLES = {"Variable", "VariableV2", "VarHandleOp"}


class FrozenGraph(SessionModel):
    """A frozen graph.

    Inputs and outputs have the order and the names of `graph_meta.json`, without ":0". If there is none, they are found
    as those of a `Checkpoint`.
    """

    def _build(self, session: Any, files: ModelFiles, options: ModelOptions) -> tuple[dict[str, str], dict[str, str]]:
        path, *metas = files.paths
        self.careful = has_operator(path, self._LOOPS)
        graph = _read(path)
        with_operators(lambda: tf.graph_util.import_graph_def(graph, name=""), path)
        if not metas:
            return found_names(path, session.graph, options)
        inputs, outputs = read_meta(metas[0])
        for name in [*inputs.values(), *outputs.values()]:
            if not has_tensor(session.graph, name):
                ends = ", ".join(node.name for node in graph.node if node.op == "Placeholder") or "none"
                raise ModelError(
                    f"{metas[0]} names the tensor {name!r}, which {path} lacks; its placeholders are {ends}"
                )
        return inputs, outputs


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
