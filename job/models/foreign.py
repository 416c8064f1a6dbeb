"""Files of models that no engine serves, and what to do with each."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

_SKOPS = "write scikit-learn models with skops.io.dump(model, 'model.skops'), or load the file in a handler"
_WEIGHTS = "it has weights alone, so export the model where its code is: torch.export.save(program, 'model.pt2')"
_HUGGING_FACE = "for a folder of Hugging Face, cluster-serving-init --from FOLDER has the export of its model"

_WAYS = {
    "*.joblib": _SKOPS,
    "*.pkl": _SKOPS,
    "*.pickle": _SKOPS,
    "*.sav": _SKOPS,
    "*.tflite": "install the engine of examples/engines/litert, or convert the model with tf2onnx",
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
    "*.mlmodel": "serve the model that Core ML was given",
    "*.pmml": "serve the model that was exported, or load it in a handler",
}


def way_out(names: Iterable[str]) -> str:
    """Return what to do with the first of these files that is such a model; empty if none is."""
    for name in names:
        for pattern, way in _WAYS.items():
            if fnmatchcase(name.lower(), pattern):
                return f" {name}: {way}."
    return ""
