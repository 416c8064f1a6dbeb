"""The kinds of model folders, of the built-in engines and of those that other distributions add.

A distribution adds an engine by an entry point of the group `cluster_serving.engines`, whose value is a `Format` or a
tuple of them. The built-in ones are entry points too, listed here: a job in a cluster has our code without metadata.
"""

import importlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "cluster_serving.engines"
"""Group of the entry points of engines."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of model folder.

    Attributes:
        engine: Name of the engine, for people.
        loader: Function or class that takes `ModelFiles` and `ModelOptions` and returns a `Model`, as
            "package.module:name". Importing the module of this format must not import the engine.
        package: Package that the module imports.
        parts: Required parts of the folder: for each the patterns, in lower case, of which one matches. A pattern of a
            folder ends with `/`.
        ignored: Patterns, in lower case, of names that match a pattern but belong to another format.
        devices: Function that returns the devices of the engine (`devices.Reported`), as "package.module:name"; empty
            if it computes on the CPU alone.
        requirement: Requirement that installs the engine; filled in with the extra or the distribution of the entry
            point.
        yields: True if files of other purposes have such names, too: another model in the folder comes first.
        lock: Name of the lock that is held while a model is loaded and called for the first time, as the engine cannot
            do that in two threads of a process. Formats may share a lock. Empty for an engine that can.
    """

    engine: str
    loader: str
    package: str
    parts: tuple[tuple[str, ...], ...]
    ignored: frozenset[str] = frozenset()
    devices: str = ""
    requirement: str = ""
    yields: bool = False
    lock: str = ""

    def __str__(self) -> str:
        return f"{self.engine}: {' and '.join(' or '.join(patterns) for patterns in self.parts)}"


def imported(place: str) -> Any:
    """Return what "package.module:name" names; a module that begins with a dot is one of `job.models`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module, __package__), name)


_OF_SAVED_MODELS = frozenset({"saved_model.pb", "fingerprint.pb", "keras_metadata.pb"})
_OF_TENSORFLOW = ".tensorflow.session:devices"
_OF_TORCH = ".torch.module:devices"

OPENVINO = Format(
    "OpenVINO", ".openvino.ir:OpenVINOModel", "openvino", (("*.xml",), ("*.bin",)), devices=".openvino.compiled:devices"
)
TENSORFLOW = (
    Format(
        "TensorFlow",
        ".tensorflow.saved_model:SavedModel",
        "tensorflow",
        (("saved_model.pb",), ("variables/",)),
        devices=_OF_TENSORFLOW,
    ),
    Format(
        "TensorFlow frozen graph",
        ".tensorflow.frozen_graph:FrozenGraph",
        "tensorflow",
        (("*.pb",), ("graph_meta.json",)),
        _OF_SAVED_MODELS,
        _OF_TENSORFLOW,
    ),
    # A converter leaves such a file beside the model that it made of it.
    Format(
        "TensorFlow frozen graph",
        ".tensorflow.frozen_graph:FrozenGraph",
        "tensorflow",
        (("*.pb",),),
        _OF_SAVED_MODELS,
        _OF_TENSORFLOW,
        yields=True,
    ),
    Format(
        "TensorFlow checkpoint",
        ".tensorflow.checkpoint:Checkpoint",
        "tensorflow",
        (("*.meta",), ("*.index", "*.ckpt")),
        devices=_OF_TENSORFLOW,
    ),
    Format(
        "Keras", ".tensorflow.keras:KerasModel", "tensorflow", (("*.keras", "*.h5", "*.hdf5"),), devices=_OF_TENSORFLOW
    ),
)
TORCH = (
    Format("TorchScript", ".torch.script:load", "torch", (("*.pt", "*.pth"),), devices=_OF_TORCH),
    Format(
        "torch.export",
        ".torch.exported:ExportedProgram",
        "torch",
        (("*.pt2",),),
        devices=_OF_TORCH,
        # Its deserializer is a global variable: of eight loads at once, seven failed (PyTorch 2.13).
        lock="torch.export",
    ),
)
ONNX = Format("ONNX Runtime", ".onnx:OnnxModel", "onnxruntime", (("*.onnx",),), devices=".onnx:devices")
CAFFE = Format("Caffe", ".caffe:CaffeModel", "cv2", (("*.prototxt",), ("*.caffemodel",)))
BIGDL = Format(
    "BigDL", ".bigdl.model:BigDLModel", "torch", (("*.model", "*.bigdl"),), frozenset({"*xgb*.model"}), _OF_TORCH
)
XGBOOST = Format(
    "XGBoost",
    ".tabular.xgboost:XGBoostModel",
    "xgboost",
    (("*.ubj", "*.xgb", "model.json", "*xgb*.json", "*xgb*.model"),),
    yields=True,
)
LIGHTGBM = Format(
    "LightGBM",
    ".tabular.lightgbm:LightGBMModel",
    "lightgbm",
    (("*.lgb", "model.txt", "*lgb*.txt", "*gbm*.txt"),),
    yields=True,
)
CATBOOST = Format("CatBoost", ".tabular.catboost:CatBoostModel", "catboost", (("*.cbm", "*.cb"),))
SKOPS = Format("scikit-learn", ".tabular.scikit_learn:ScikitLearnModel", "skops", (("*.skops",),))

# The names are the extras that install them.
_BUILT_IN = tuple(
    EntryPoint(name, f"{__name__}:{name.upper()}", GROUP)
    for name in (
        *("openvino", "tensorflow", "torch", "onnx", "caffe", "bigdl"),
        *("xgboost", "lightgbm", "catboost", "skops"),
    )
)


@cache
def formats() -> tuple[Format, ...]:
    """Return every kind of model folder that can be served; the engines are not imported."""
    return tuple(found for entry in (*_BUILT_IN, *entry_points(group=GROUP)) for found in _load(entry))


def requirements() -> set[str]:
    """Return the requirements that install all engines that are known here."""
    return {format.requirement for format in formats()}


def _load(entry: EntryPoint) -> Iterator[Format]:
    # Entry points that are not read from metadata have no distribution.
    distribution = getattr(entry, "dist", None)
    requirement = distribution.name if distribution else f"cluster-serving[{entry.name}]"
    try:
        found = entry.load()
        for format in found if isinstance(found, tuple) else (found,):
            yield replace(format, requirement=requirement)
    except Exception:
        # A broken distribution must not keep other models from being served.
        log.exception("the engine %s of the distribution %s cannot be used", entry.name, requirement)
