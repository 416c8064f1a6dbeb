"""Keras: a `*.keras`, `*.h5` or `*.hdf5`, of Keras 3 or 2, run as a TensorFlow graph by a session of its own."""

import os
import shutil
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.job.models.base import ROUGH, cause
from cluster_serving.job.models.detect import ModelFiles
from cluster_serving.job.models.encryption import scratch_folder
from cluster_serving.job.models.loops import has_operator
from cluster_serving.job.models.tensorflow.session import SessionModel, tf
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError

os.environ["KERAS_BACKEND"] = "tensorflow"  # a session cannot run another backend of the user's choice

import h5py
import keras

from cluster_serving.job.models.tensorflow import keras2

_TRIED = ((1, 6), (3, 9))
"""Records, and free sizes, with which a graph is compared with the model."""

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
        # Keras has the batch in front.
        self.symbols = {spec.name: ["batch", *("" for _ in (spec.shape or ())[1:])] for spec in self.inputs}

    def _build(self, session: Any, files: ModelFiles, options: ModelOptions) -> tuple[dict[str, str], dict[str, str]]:
        self.careful = has_operator(Path(self._folder, "saved_model.pb"), self._LOOPS)
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
        model = _load(path, Path(folder))
        structure = getattr(model, "_inputs_struct", model.inputs[0])

        def call(**tensors: Any) -> dict[str, Any]:
            flat = [tensors[f"input_{index}"] for index in range(len(tensors))]
            result = model(keras.tree.pack_sequence_as(structure, flat), training=False)
            return {f"output_{index}": tensor for index, tensor in enumerate(keras.tree.flatten(result))}

        module = tf.Module()
        module.model = model  # holds the tables; its own tracking leaves out the variables
        module.weights = [variable.value for variable in model.variables]
        specs = {f"input_{i}": tf.TensorSpec(t.shape, t.dtype, f"input_{i}") for i, t in enumerate(model.inputs)}
        # As an attribute of the module, the function would be traced again.
        function = tf.function(call).get_concrete_function(**specs)
        # The states of recurrent layers are no variables of the model.
        module.captured = function.variables
        _compare(path, model, function, call, specs)
        tf.saved_model.save(module, folder, signatures=function)
        return [tensor.name for tensor in model.inputs], _output_names(model)


def _compare(path: Path, model: Any, function: Any, call: Any, specs: dict[str, Any]) -> None:
    """Raise an error if the model gives other results as a graph, for free sizes: some layers trace one of them."""
    if not any(None in spec.shape.as_list()[1:] for spec in specs.values()):
        return
    for batch, size in _TRIED:
        generator = tf.random.Generator.from_seed(0)
        try:
            given = {
                name: _random(generator, [batch, *(size if one is None else one for one in spec.shape[1:])], spec.dtype)
                for name, spec in specs.items()
            }
            expected = call(**given)
        except Exception:  # noqa: S112 - sizes that the model does not take
            continue
        try:
            found = function(**given)
            same = all(_is_close(expected[name], found[name]) for name in expected)
        except tf.errors.OpError:
            same = False
        if not same:
            layers = [layer.name for layer in _layers(model) if isinstance(layer, keras.layers.TimeDistributed)]
            named = f"layer {layers[0]!r} (TimeDistributed)" if layers else "a layer"
            raise ModelError(
                f"{path}: as a graph, {named} computes something else for records of a free size than the model does "
                f"(Keras {keras.__version__}); give the model an input of a fixed size, such as "
                "keras.Input((5, 8, 8, 3)), and save it again"
            )


def _random(generator: Any, shape: list[int], dtype: Any) -> Any:
    if dtype == tf.string:
        return tf.fill(shape, "a")
    return tf.cast(generator.uniform(shape, 0, 2), dtype)


def _is_close(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype.kind not in "fc":
        return np.array_equal(one, other)
    return one.shape == other.shape and np.allclose(one, other, ROUGH, ROUGH * np.abs(one).max(initial=0), True)


def _layers(model: Any) -> Iterator[Any]:
    for layer in getattr(model, "layers", ()):
        yield layer
        yield from _layers(layer)


def _load(path: Path, scratch: Path) -> Any:
    written = keras2.version(path)
    try:
        model = keras.saving.load_model(_readable(path, scratch, written), compile=False, safe_mode=True)
    except Exception as error:
        raise _refusal(path, written, cause(error)) from error
    if not getattr(model, "built", False) or not getattr(model, "inputs", None):
        raise ModelError(f"{path} does not say what its inputs are: call it once before it is saved, or {_EXPORT}")
    return model


def _readable(path: Path, scratch: Path, written: str) -> Path:
    """Return the file, or a copy that Keras can read: it knows formats by suffixes, and not all keys of Keras 2."""
    if written.startswith("2."):
        return keras2.upgrade(path, scratch)
    if path.suffix in (".keras", ".h5"):
        return path
    copy = scratch / f"model{'.keras' if zipfile.is_zipfile(path) else '.h5'}"
    shutil.copyfile(path, copy)
    return copy


def _refusal(path: Path, written: str, text: str) -> ModelError:
    """Return the error for a file that Keras cannot load, with the way to serve the model."""
    if not (zipfile.is_zipfile(path) or h5py.is_hdf5(path)):
        return ModelError(f"{path} is not a file of Keras, or it is cut off: copy it again, or save the model again")
    if "No model config found" in text or "config.json" in text:
        return ModelError(f"{path} holds weights without the model: save it with model.save('model.keras')")
    if "truncated" in text or "Unable to open file" in text or "unable to open" in text.lower():
        return ModelError(f"{path} is cut off: copy it again, or save the model again")
    if "safe_mode" in text or "unsafe" in text or "of a `Lambda` layer" in text or "passed to Lambda" in text:
        return ModelError(
            f"{path} holds Python code (a Lambda layer), which is not loaded: write it as layers or keras.ops, or "
            f"{_EXPORT}"
        )
    if written.startswith("2."):
        return ModelError(
            f"{path} is written by Keras {written}, and Keras {keras.__version__} cannot read it: run "
            f"tf.saved_model.save(model, 'folder') where it was trained, and serve that SavedModel. Keras says: {text}"
        )
    if any(hint in text for hint in ("custom_objects", "Could not locate", "Unknown layer", "could not be deseri")):
        return ModelError(f"{path} needs a class that is not part of Keras: {_EXPORT}. Keras says: {text}")
    newer = f", and this is Keras {keras.__version__}" if written else ""
    return ModelError(f"Keras cannot load {path}, written by Keras {written or '(unknown)'}{newer}: {text}")


def _output_names(model: Any) -> list[str]:
    structure = getattr(model, "_outputs_struct", None)
    names = sorted(map(str, structure)) if isinstance(structure, dict) else list(getattr(model, "output_names", ()))
    if not names and len(model.outputs) == 1:
        names = [model.layers[-1].name]  # a Sequential
    return names if len(set(names)) == len(model.outputs) else [f"output_{i}" for i in range(len(model.outputs))]
