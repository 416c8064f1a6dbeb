"""TensorFlow SavedModel: `saved_model.pb` and `variables/`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.encryption import scratch_folder
from cluster_serving.job.models.loops import has_operator
from cluster_serving.job.models.tensorflow.session import SessionModel, tf, with_operators
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError

_SIGNATURE = "serving_default"


class SavedModel(SessionModel):
    """A signature of a SavedModel: `serving_default`, or the only one.

    Inputs and outputs are in the alphabetical order of its keys.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        self._folder = str(files.folder)
        super().__init__(files, options)
        if _lacks_variables(self._session, [tensor.op for tensor in self._fetches]):
            # As tf.saved_model.save writes a model of Keras 3: only objects, not the graph, know of the variables.
            self.close()
            with scratch_folder(sum(file.stat().st_size for file in files.folder.rglob("*"))) as folder:
                _write_again(self._folder, str(folder))
                self._folder = str(folder)
                super().__init__(files, options)

    def _build(self, session: Any, files: ModelFiles, options: ModelOptions) -> tuple[dict[str, str], dict[str, str]]:
        folder = self._folder
        self.careful = has_operator(Path(folder, "saved_model.pb"), self._LOOPS)
        meta = with_operators(
            lambda: tf.compat.v1.saved_model.load(session, [tf.saved_model.SERVING], folder, clear_devices=True),
            files.folder,
        )
        signatures = {name: found for name, found in meta.signature_def.items() if found.outputs and name[:2] != "__"}
        name = next(iter(signatures)) if len(signatures) == 1 else _SIGNATURE
        if name in signatures:
            inputs, outputs = signatures[name].inputs, signatures[name].outputs
            return {key: inputs[key].name for key in sorted(inputs)}, {
                key: outputs[key].name for key in sorted(outputs)
            }
        if options.inputs and options.outputs:
            return {}, {}
        listed = "; ".join(
            f"of {name} inputs: [{_tensors(found.inputs)}] and outputs: [{_tensors(found.outputs)}]"
            for name, found in sorted(signatures.items())
        )
        raise ModelError(
            f"{files.folder} has no signature {_SIGNATURE!r}"
            + (f"; name the tensors of another one in config.yaml: {listed}" if listed else ", nor another one")
        )


def _lacks_variables(session: Any, operations: Iterable[Any]) -> bool:
    """Return True if an operation that these need reads a variable without a value."""
    seen, left = set(), list(operations)
    while left:
        operation = left.pop()
        if operation not in seen:
            seen.add(operation)
            left += [tensor.op for tensor in operation.inputs]
    known = []
    for operation in seen:
        if operation.type == "VarHandleOp":
            with session.graph.as_default(), tf.device(operation.device):
                known.append(tf.raw_ops.VarIsInitializedOp(resource=operation.outputs[0]))
    return not all(session.run(known))


def _write_again(folder: str, copy: str) -> None:
    """Write a copy of a SavedModel whose graph has the values of its variables."""
    module = tf.Module()
    module.restored = tf.saved_model.load(folder)
    signatures = dict(module.restored.signatures)
    module.variables_of_signatures = [function.variables for function in signatures.values()]
    tf.saved_model.save(module, copy, signatures=signatures)


def _tensors(tensors: Any) -> str:
    """Return the tensors of a signature as config.yaml has them."""
    return ", ".join(tensors[key].name for key in sorted(tensors))
