"""Keras: a `*.keras`, or a `*.h5` of Keras 2, run as a TensorFlow graph by a session of its own."""

import os
import warnings
from pathlib import Path
from typing import Any

from cluster_serving.job.models.base import cause
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.encryption import scratch_folder
from cluster_serving.job.models.tensorflow.session import SessionModel, tf
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError

os.environ["KERAS_BACKEND"] = "tensorflow"  # a session cannot run another backend of the user's choice

import keras

_EXPORT = "export it with model.export('folder') where it was trained, and serve that SavedModel"


class KerasModel(SessionModel):
    """A Keras model in inference mode. Inputs and outputs are in the order of the model.

    Outputs have the names of the keys of the dict that the model returns, else of the layers that compute them.
    """

    def __init__(self, files: ModelFiles, options: ModelOptions) -> None:
        # Eager models share one pool of threads per process. A SavedModel keeps the tables of string lookups, which a
        # frozen graph loses.
        with scratch_folder(2 * files.paths[0].stat().st_size) as folder:
            self._folder = str(folder)
            self._names = _convert(files.paths[0], self._folder)
            super().__init__(files, options)

    def _build(self, session: Any, files: ModelFiles, options: ModelOptions) -> tuple[dict[str, str], dict[str, str]]:
        meta = tf.compat.v1.saved_model.load(session, [tf.saved_model.SERVING], self._folder, clear_devices=True)
        signature = meta.signature_def["serving_default"]
        inputs, outputs = self._names
        return (
            {name: signature.inputs[f"input_{index}"].name for index, name in enumerate(inputs)},
            {name: signature.outputs[f"output_{index}"].name for index, name in enumerate(outputs)},
        )


def _convert(path: Path, folder: str) -> tuple[list[str], list[str]]:
    """Write the model as a SavedModel whose inputs and outputs are numbered, and return their names in order."""
    if keras.backend.backend() != "tensorflow":
        raise ModelError(f"Keras runs on {keras.backend.backend()} in this process; it has to be tensorflow")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about parts that only training needs, such as an optimizer
        model = _load(path)
        structure = getattr(model, "_inputs_struct", model.inputs[0])

        def call(**tensors: Any) -> dict[str, Any]:
            flat = [tensors[f"input_{index}"] for index in range(len(tensors))]
            result = model(keras.tree.pack_sequence_as(structure, flat), training=False)
            return {f"output_{index}": tensor for index, tensor in enumerate(keras.tree.flatten(result))}

        module = tf.Module()
        module.model = model  # holds the tables; its own tracking leaves out the variables
        module.weights = [variable.value for variable in model.variables]
        module.call = tf.function(call)
        specs = {f"input_{i}": tf.TensorSpec(t.shape, t.dtype, f"input_{i}") for i, t in enumerate(model.inputs)}
        tf.saved_model.save(module, folder, signatures=module.call.get_concrete_function(**specs))
        return [tensor.name for tensor in model.inputs], _output_names(model)


def _load(path: Path) -> Any:
    try:
        model = keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        text = cause(error)
        if "safe_mode" in text or "unsafe" in text:
            raise ModelError(
                f"{path} holds Python code (a Lambda layer), which is not loaded: write it as layers or keras.ops, or "
                f"{_EXPORT}"
            ) from error
        if any(hint in text for hint in ("custom_objects", "Could not locate", "Unknown layer", "could not be deseri")):
            raise ModelError(
                f"{path} needs a class that is not part of Keras: {_EXPORT}. Keras says: {text}"
            ) from error
        if "No model config found" in text or "config.json" in text:
            raise ModelError(
                f"{path} holds weights without the model: save it with model.save('model.keras')"
            ) from error
        raise
    if not getattr(model, "built", False) or not getattr(model, "inputs", None):
        raise ModelError(f"{path} does not say what its inputs are: call it once before it is saved, or {_EXPORT}")
    return model


def _output_names(model: Any) -> list[str]:
    structure = getattr(model, "_outputs_struct", None)
    names = sorted(map(str, structure)) if isinstance(structure, dict) else list(getattr(model, "output_names", ()))
    if not names and len(model.outputs) == 1:
        names = [model.layers[-1].name]  # a Sequential
    return names if len(set(names)) == len(model.outputs) else [f"output_{i}" for i in range(len(model.outputs))]
