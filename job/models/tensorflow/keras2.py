"""Files of Keras 2 for Keras 3: their configuration has keys and names that Keras 3 refuses."""

import inspect
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import keras

_CONFIG = "config.json"
_METADATA = "metadata.json"

# Key → value that changes nothing. Keys that a layer of Keras 3 takes stay.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "groups": (1,),
    "time_major": (False,),
    "ragged": (False,),
    "attention_axes": (None, [1]),
    "implementation": (0, 1, 2),
    "interpolation": ("nearest",),
}

# Keys that repeat what Keras 3 reads elsewhere.
_UNUSED = re.compile(r"batch_input_shape|input_length|(query|key|value)_shape")

# Keys that only training needs.
_TRAINING = re.compile(r"\w+_(initializer|regularizer|constraint)")

_TF_KERAS = re.compile(r"tf_keras\b")

_WRAPPED = ("backward_layer", "cell", "cells", "layer")
"""Keys of layers that a layer is made of; the oldest files do not tell their modules."""

_HARD_SIGMOID = "hard_sigmoid"
_PACKAGE = "cluster_serving"


@keras.saving.register_keras_serializable(_PACKAGE, _HARD_SIGMOID)  # type: ignore[untyped-decorator]
def _hard_sigmoid(x: Any) -> Any:
    """Compute the hard sigmoid of Keras 2; that of Keras 3 is another function with the same name."""
    return keras.ops.clip(0.2 * x + 0.5, 0.0, 1.0)


_OF_KERAS_2 = {"class_name": "function", "config": f"{_PACKAGE}>{_HARD_SIGMOID}", "registered_name": "function"}


def version(path: Path) -> str:
    """Return the version of Keras that wrote a file; empty if the file does not tell."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return str(json.loads(archive.read(_METADATA))["keras_version"])
        with h5py.File(path) as file:
            found = file.attrs.get("keras_version", "")
            return found.decode() if isinstance(found, bytes) else str(found)
    except (OSError, KeyError, ValueError):
        return ""


def upgrade(path: Path, folder: Path) -> Path:
    """Write a copy of a file of Keras 2 into a folder, with a configuration that Keras 3 takes."""
    if zipfile.is_zipfile(path):
        copy = folder / "upgraded.keras"
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(copy, "w") as target:
            for name in source.namelist():
                content = source.read(name)
                target.writestr(name, _upgraded_text(content) if name == _CONFIG else content)
        return copy
    copy = folder / "upgraded.h5"
    shutil.copyfile(path, copy)
    with h5py.File(copy, "r+") as file:
        if "model_config" in file.attrs:
            file.attrs["model_config"] = _upgraded_text(file.attrs["model_config"])
    return copy


def _upgraded_text(text: str | bytes) -> str:
    config = _upgraded(json.loads(text))
    return json.dumps(_renamed(config, frozenset(name for name in _names(config) if "/" in name)))


def _names(value: Any) -> Iterator[str]:
    """Yield the names of all layers."""
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names(item)
    if isinstance(value, dict) and isinstance(config := value.get("config"), dict):
        yield str(config.get("name", ""))


def _renamed(value: Any, names: frozenset[str]) -> Any:
    """Return a configuration without "/" in these names, which Keras 3 refuses."""
    if isinstance(value, list):
        return [_renamed(item, names) for item in value]
    if isinstance(value, dict):
        return {key: _renamed(item, names) for key, item in value.items()}
    return value.replace("/", "_") if isinstance(value, str) and value in names else value


def _upgraded(value: Any) -> Any:
    if isinstance(value, list):
        return [_upgraded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("class_name") == "Sequential":
        value = value | {"config": _with_input(value["config"])}
    value = {key: _upgraded(item) for key, item in value.items()}
    kind, config = value.get("class_name"), value.get("config")
    if not isinstance(kind, str) or not isinstance(config, dict):
        return value
    if kind in ("Functional", "Sequential"):
        # In HDF5 files a model within another has no module.
        value |= {"module": f"keras.src.models.{kind.lower()}", "registered_name": None}
    elif isinstance(value.get("module"), str):
        value["module"] = _TF_KERAS.sub("keras", value["module"])
    if kind == "InputLayer" and "batch_input_shape" in config:
        config["batch_shape"] = config.pop("batch_input_shape")
    layer = getattr(keras.layers, kind, None)
    if layer is not None:
        taken = inspect.signature(layer.__init__).parameters
        for key in [*config]:
            is_unused = key not in taken and (_UNUSED.fullmatch(key) or config[key] in _NEUTRAL.get(key, ()))
            if is_unused or _TRAINING.fullmatch(key):
                del config[key]
    for key in _WRAPPED:
        parts = config.get(key)
        for part in parts if isinstance(parts, list) else [parts]:
            if isinstance(part, dict) and hasattr(keras.layers, str(part.get("class_name"))) and "module" not in part:
                part |= {"module": "keras.layers", "registered_name": None}
    for key in ("activation", "recurrent_activation"):
        if config.get(key) == _HARD_SIGMOID:
            config[key] = _OF_KERAS_2
    if kind in ("GRU", "GRUCell"):
        # The layer of the first versions has no such key.
        config.setdefault("reset_after", False)
    for key in ("input_layers", "output_layers"):
        # A model with one output returns it, not a list.
        if kind in ("Functional", "Model") and isinstance(config.get(key), list) and len(config[key]) == 1:
            (config[key],) = config[key]
    if kind == "BatchNormalization" and isinstance(config.get("axis"), list) and len(config["axis"]) == 1:
        (config["axis"],) = config["axis"]
    return value


def _with_input(written: Any) -> dict[str, Any]:
    """Return the configuration of a Sequential that begins with its input; up to Keras 2.3 the first layer has it."""
    # The oldest files have the layers alone.
    config: dict[str, Any] = {**written} if isinstance(written, dict) else {"name": "sequential", "layers": written}
    first = next(iter(config.get("layers", ())), None)
    while isinstance(first, dict) and first.get("class_name") == "Sequential":
        inner = first["config"]
        first = next(iter(inner["layers"] if isinstance(inner, dict) else inner), None)
    if isinstance(first, dict) and first.get("class_name") != "InputLayer" and "batch_input_shape" in first["config"]:
        own = first["config"]
        taken = {
            "batch_shape": own["batch_input_shape"],
            "dtype": own.get("dtype") or "float32",
            "name": f"{own['name']}_input",
        }
        config["layers"] = [{"class_name": "InputLayer", "config": taken}, *config["layers"]]
    return config
