"""Files of models that no engine serves, and what to do with each."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

_SKOPS = "write scikit-learn models with skops.io.dump(model, 'model.skops'), or load the file in a handler"
_WEIGHTS = "it has weights alone, so export the model where its code is: torch.export.save(program, 'model.pt2')"
_HUGGING_FACE = "for a folder of Hugging Face, cluster-serving-init --from FOLDER has the export of its model"

_LITERT = "install the engine of examples/engines/litert, or convert the model with tf2onnx"
_GIVEN = "serve the model that its converter was given"
_PADDLE = "convert the model with paddle2onnx"

_WAYS = {
    "*.joblib": _SKOPS,
    "*.joblib.*": _SKOPS,
    "*.pkl": _SKOPS,
    "*.pkl.*": _SKOPS,
    "*.pickle": _SKOPS,
    "*.dill": _SKOPS,
    "*.sav": _SKOPS,
    "*.tflite": _LITERT,
    "*.lite": _LITERT,
    "*.gz": "unpack it",
    "*.ort": "serve the .onnx that it was made of",
    "*.pdmodel": _PADDLE,
    "*.pdiparams": _PADDLE,
    "*.pdparams": _PADDLE,
    "*.ptl": "save the model for servers: torch.export.save(program, 'model.pt2')",
    "*.pte": "save the model for servers: torch.export.save(program, 'model.pt2')",
    "*.nemo": "export the model where NeMo is: model.export('model.onnx')",
    "*.msgpack": "export the model where its code is, with jax2tf or jax2onnx",
    "*-symbol.json": "convert the model of MXNet to ONNX where MXNet is",
    "*.param": _GIVEN,
    "*.mnn": _GIVEN,
    "*.rknn": _GIVEN,
    "*.dlc": _GIVEN,
    "*.hef": _GIVEN,
    "*.kmodel": _GIVEN,
    "*.mlpackage/": _GIVEN,
    "*.mojo": "load it in a handler, with h2o",
    "*.safetensors": _HUGGING_FACE,
    "pytorch_model*.bin": _HUGGING_FACE,
    "*.gguf": "load it in a handler, with llama-cpp-python",
    "*.ckpt": _WEIGHTS,
    "*.npz": "it has arrays without a model: load it in a handler",
    "*.npy": "it has an array without a model: load it in a handler",
    "*.ftz": "load it in a handler, with fasttext",
    "*.bin": "beside its .xml it is a model of OpenVINO; one of fastText is loaded in a handler",
    "*.mar": "cluster-serving-init --from FILE takes an archive of TorchServe",
    "*.engine": "serve the model that TensorRT was given, as ONNX",
    "*.plan": "serve the model that TensorRT was given, as ONNX",
    "*.mlmodel": _GIVEN,
    "*.pmml": "serve the model that was exported, or load it in a handler",
}


def way_out(names: Iterable[str]) -> str:
    """Return what to do with one of these files that is such a model; empty if none is."""
    found = [*names]
    for pattern, way in _WAYS.items():
        for name in found:
            if fnmatchcase(name.lower(), pattern):
                return f" {name}: {way}."
    return ""
