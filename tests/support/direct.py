"""Each engine called as its own documentation shows, to compare with."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import model_zoo


def _openvino(folder: Path, x: np.ndarray, output: str) -> Any:
    import openvino

    return openvino.Core().compile_model(next(folder.glob("*.xml")), "CPU")(x)[0]


def _saved_model(folder: Path, x: np.ndarray, output: str) -> Any:
    import tensorflow as tf

    return tf.saved_model.load(str(folder)).signatures["serving_default"](x=tf.constant(x))[output]


def _frozen_graph(folder: Path, x: np.ndarray, output: str) -> Any:
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef.FromString((folder / "frozen_inference_graph.pb").read_bytes())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(graph, name="")
        return session.run(f"{output}:0", {"x:0": x})


def _checkpoint(folder: Path, x: np.ndarray, output: str) -> Any:
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.train.import_meta_graph(str(folder / "model.ckpt.meta")).restore(
            session, str(folder / "model.ckpt")
        )
        return session.run(f"{output}:0", {"x:0": x})


def _keras(folder: Path, x: np.ndarray, output: str) -> Any:
    import keras

    return keras.saving.load_model(folder / "model.keras")(x)


def _torchscript(folder: Path, x: np.ndarray, output: str) -> Any:
    import torch

    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript as a whole
        return torch.jit.load(str(folder / "model.pt"))(torch.from_numpy(x)).numpy()


def _torch_export(folder: Path, x: np.ndarray, output: str) -> Any:
    import torch

    with torch.inference_mode():
        return torch.export.load(folder / "model.pt2").module()(torch.from_numpy(x)).numpy()


def _onnx(folder: Path, x: np.ndarray, output: str) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def _caffe(folder: Path, x: np.ndarray, output: str) -> Any:
    import cv2

    net = cv2.dnn.readNetFromCaffe(str(folder / "net.prototxt"), str(folder / "net.caffemodel"))
    net.setInput(x)
    return net.forward()


def _numpy(folder: Path, x: np.ndarray, output: str) -> Any:
    # BigDL itself needs Spark; its layers are compared with PyTorch's in test_bigdl.py.
    if output == "probabilities":
        return model_zoo.digits_mlp(x)
    return x.mean(3) if x.ndim == 4 else np.concatenate([x, x], 1)


def call(engine: str, folder: Path, x: np.ndarray, output: str = "probabilities") -> np.ndarray:
    """What an engine computes for a model in a folder.

    Args:
        engine: As `Model.engine`.
        folder: Holds one of the models of `model_zoo`, `twice`, `row_means` or `doubled`.
        x: Batch for the input `x`.
        output: Name of the output.
    """
    return np.asarray(_CALLS[engine](folder, x, output))


_CALLS = {
    "OpenVINO": _openvino,
    "TensorFlow": _saved_model,
    "TensorFlow frozen graph": _frozen_graph,
    "TensorFlow checkpoint": _checkpoint,
    "Keras": _keras,
    "TorchScript": _torchscript,
    "torch.export": _torch_export,
    "ONNX Runtime": _onnx,
    "Caffe": _caffe,
    "BigDL": _numpy,
}
