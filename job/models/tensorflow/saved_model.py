"""TensorFlow SavedModel: `saved_model.pb` and `variables/`."""

from typing import Any

from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.tensorflow.session import SessionModel, tf, with_operators
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError

_SIGNATURE = "serving_default"


class SavedModel(SessionModel):
    """A signature of a SavedModel: `serving_default`, or the only one.

    Inputs and outputs are in the alphabetical order of its keys.
    """

    def _build(self, session: Any, files: ModelFiles, options: ModelOptions) -> tuple[dict[str, str], dict[str, str]]:
        folder = str(files.folder)
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


def _tensors(tensors: Any) -> str:
    """Return the tensors of a signature as config.yaml has them."""
    return ", ".join(tensors[key].name for key in sorted(tensors))
