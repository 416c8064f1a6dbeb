"""Files of Keras 2 for Keras 3: their configuration has keys and names that Keras 3 refuses."""

import inspect
import json
import re
import shutil
import zipfile
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
    "implementation": (1, 2),
    "interpolation": ("nearest",),
}

# Keys that repeat what Keras 3 reads elsewhere, or that only training needs.
_UNUSED = re.compile(r"batch_input_shape|input_length|(query|key|value)_shape|\w+_(initializer|regularizer|constraint)")

_TF_KERAS = re.compile(r"tf_keras\b")


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
    return json.dumps(_upgraded(json.loads(text)))


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
        for key in [key for key in config if key not in taken]:
            if _UNUSED.fullmatch(key) or config[key] in _NEUTRAL.get(key, ()):
                del config[key]
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
