"""TensorFlow SavedModel: `saved_model.pb` and `variables/`."""

from typing import Any

from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.tensorflow.session import SessionModel, tf
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError

_SIGNATURE = "serving_default"


class SavedModel(SessionModel):
    """Signature `serving_default` of a SavedModel. Inputs and outputs are in the alphabetical order of its keys."""

    def _build(self, session: Any, files: ModelFiles, options: ModelOptions) -> tuple[dict[str, str], dict[str, str]]:
        meta = tf.compat.v1.saved_model.load(session, [tf.saved_model.SERVING], str(files.folder), clear_devices=True)
        signatures = meta.signature_def
        if _SIGNATURE not in signatures and not (options.inputs and options.outputs):
            names = ", ".join(sorted(signatures)) or "none"
            raise ModelError(f"the SavedModel has no signature {_SIGNATURE!r}; it has {names}")
        signature = signatures[_SIGNATURE]  # a missing entry of this protobuf map is an empty signature
        return (
            {key: signature.inputs[key].name for key in sorted(signature.inputs)},
            {key: signature.outputs[key].name for key in sorted(signature.outputs)},
        )
