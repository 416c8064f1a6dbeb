"""TensorFlow checkpoint: a meta graph (`*.meta`) and its variables (`*.index` and `*.data-*`, or `*.ckpt`)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.loops import has_operator
from cluster_serving.job.models.tensorflow.frozen_graph import META_FILE, keys, read_meta
from cluster_serving.job.models.tensorflow.session import SessionModel, has_tensor, tensor_name, tf, with_operators
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError

_PARTS_OF_TRAINING = ("gradients", "save", "report_uninitialized")
_LIKELY_OUTPUTS = {"Softmax", "Sigmoid", "ArgMax", "BiasAdd", "AddV2", "Identity"}
_MAX_LISTED = 10


class Checkpoint(SessionModel):
    """The graph of a checkpoint with its variables restored.

    The outputs are named by a `graph_meta.json`, else by `ModelOptions`; else the output is the only end of the graph.
    The inputs are those of the `graph_meta.json`, else the placeholders that the outputs need.
    """

    def _build(self, session: Any, files: ModelFiles, options: ModelOptions) -> tuple[dict[str, str], dict[str, str]]:
        path = files.paths[0]
        self.careful = has_operator(path, self._LOOPS)
        saver = with_operators(lambda: tf.compat.v1.train.import_meta_graph(str(path), clear_devices=True), path)
        if saver is not None:
            saver.restore(session, str(path.with_suffix("")))
        # Tables are no variables. Files of their content have to be at the path that the graph holds.
        session.run(tf.compat.v1.tables_initializer())
        meta = files.folder / META_FILE
        if meta.exists():
            return read_meta(meta)
        graph = session.graph
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
