"""Each engine called as its own documentation shows, to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests import model_zoo


def _openvino(folder: Path, x: np.ndarray) -> Any:
    import openvino

    return openvino.Core().compile_model(folder / "digits.xml", "CPU")(x)[0]


def _saved_model(folder: Path, x: np.ndarray) -> Any:
    import tensorflow as tf

    return tf.saved_model.load(str(folder)).signatures["serving_default"](x=tf.constant(x))["probabilities"]


def _frozen_graph(folder: Path, x: np.ndarray) -> Any:
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef.FromString((folder / "frozen_inference_graph.pb").read_bytes())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(graph, name="")
        return session.run("probabilities:0", {"x:0": x})


def _checkpoint(folder: Path, x: np.ndarray) -> Any:
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.train.import_meta_graph(str(folder / "model.ckpt.meta")).restore(
            session, str(folder / "model.ckpt")
        )
        return session.run("probabilities:0", {"x:0": x})


def _keras(folder: Path, x: np.ndarray) -> Any:
    import keras

    return keras.saving.load_model(folder / "model.keras")(x)


def _torchscript(folder: Path, x: np.ndarray) -> Any:
    import torch

    with torch.inference_mode():
        return torch.jit.load(str(folder / "model.pt"))(torch.from_numpy(x)).numpy()


def _torch_export(folder: Path, x: np.ndarray) -> Any:
    import torch

    with torch.inference_mode():
        return torch.export.load(folder / "model.pt2").module()(torch.from_numpy(x)).numpy()


def _onnx(folder: Path, x: np.ndarray) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def _caffe(folder: Path, x: np.ndarray) -> Any:
    import cv2

    net = cv2.dnn.readNetFromCaffe(str(folder / "net.prototxt"), str(folder / "net.caffemodel"))
    net.setInput(x)
    return net.forward()


def _numpy(folder: Path, x: np.ndarray) -> Any:
    # BigDL itself needs Spark; its layers are compared with PyTorch's in test_bigdl.py.
    return model_zoo.digits_mlp(x)


CALLS = {
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
"""Engine → what it computes for the digits model in a folder."""
