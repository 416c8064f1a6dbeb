"""Models of images in every format: the mean of each row of pixels, per channel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import model_zoo, writers

HEIGHT, WIDTH = 1, 24
"""One row, so that what a model gives is a vector and a table: every filter fits."""


def save_openvino(folder: Path) -> None:
    """`x` [?, 3, 1, 24] → `y` [?, 3, 1]."""
    ops = model_zoo.digits().ops
    x = ops.parameter([-1, 3, HEIGHT, WIDTH], np.float32)
    model_zoo.save_openvino(folder, {"x": x}, {"y": ops.reduce_mean(x, ops.constant([3]))})


def save_savedmodel(folder: Path) -> None:
    """`x` [?, 1, 24, 3] → `y` [?, 1, 3]."""
    import tensorflow as tf

    spec = tf.TensorSpec([None, HEIGHT, WIDTH, 3], tf.float32, "x")
    model_zoo.save_savedmodel(folder, lambda x: {"y": tf.reduce_mean(x, 2)}, spec)


def save_frozen_graph(folder: Path) -> None:
    """`x` [?, 1, 24, 3] → `y` [?, 1, 3]."""
    with model_zoo.graph_session() as session:
        _graph()
        model_zoo.save_frozen_graph(folder, session.graph, {"input_names": ["x"], "output_names": ["y"]})


def save_checkpoint(folder: Path) -> None:
    """`x` [?, 1, 24, 3] → `y` [?, 1, 3]."""
    import tensorflow as tf

    with model_zoo.graph_session() as session:
        _graph()
        tf.compat.v1.Variable(0.0)
        model_zoo.save_checkpoint(folder, session)


def save_keras(folder: Path) -> None:
    """`x` [?, 1, 24, 3] → `y` [?, 1, 3]."""
    import keras

    x = keras.Input((HEIGHT, WIDTH, 3), name="x")
    rows = keras.layers.AveragePooling2D((1, WIDTH))(x)
    model_zoo.save_keras(folder, keras.Model(x, keras.layers.Reshape((HEIGHT, 3), name="y")(rows)))


def save_torchscript(folder: Path) -> None:
    """[?, 3, 1, 24] → [?, 3, 1]."""
    import torch

    model_zoo.save_torchscript(folder, _Means(), torch.zeros(2, 3, HEIGHT, WIDTH))


def save_exported(folder: Path) -> None:
    """`x` [?, 3, 1, 24] → [?, 3, 1]."""
    import torch

    batch = {0: torch.export.Dim("batch")}
    model_zoo.save_exported(folder, _Means(), torch.zeros(2, 3, HEIGHT, WIDTH), dynamic_shapes=(batch,))


def save_onnx(folder: Path) -> None:
    """`x` [?, 3, 1, 24] → `y` [?, 3, 1]."""
    from onnx import helper

    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[3], keepdims=0)
    ports = {"x": ("FLOAT", ["n", 3, HEIGHT, WIDTH])}, {"y": ("FLOAT", ["n", 3, HEIGHT])}
    model_zoo.save_onnx(folder, [node], *ports)


def save_caffe(folder: Path) -> None:
    """`x` [?, 3, 1, 24] → `y` [?, 3, 1]."""
    text = f'input: "x"\ninput_shape {{ dim: 1 dim: 3 dim: {HEIGHT} dim: {WIDTH} }}\n'
    pooling = f"pooling_param {{ pool: AVE kernel_h: 1 kernel_w: {WIDTH} }}"
    text += writers.caffe_layer("Pooling", "x", "means", pooling)
    text += writers.caffe_layer("Flatten", "means", "y", "flatten_param { axis: 2 }")
    writers.save_caffe(folder, text, {})


def save_bigdl(folder: Path) -> None:
    """[?, 3, 1, 24] → [?, 3, 1]."""
    sizes = {"kW": WIDTH, "kH": 1, "dW": 1, "dH": 1, "padW": 0, "padH": 0, "ceilMode": False, "format": 0}
    means = writers.bigdl_module("SpatialAveragePooling", "m", sizes | {"countIncludePad": True, "divide": True})
    table = writers.bigdl_module("Reshape", "y", {"size": [3, HEIGHT], "batchMode": 2})
    writers.save_bigdl(folder, writers.bigdl_module("Sequential", modules=(means, table)))


def _graph() -> None:
    import tensorflow as tf

    tf.reduce_mean(tf.compat.v1.placeholder(tf.float32, [None, HEIGHT, WIDTH, 3], "x"), 2, name="y")


def _Means() -> Any:  # noqa: N802
    import torch

    class Means(torch.nn.Module):
        def forward(self, x):
            return x.mean(3)

    return Means()


SAVERS: dict[str, Callable[[Path], None]] = {
    "OpenVINO": save_openvino,
    "TensorFlow": save_savedmodel,
    "TensorFlow frozen graph": save_frozen_graph,
    "TensorFlow checkpoint": save_checkpoint,
    "Keras": save_keras,
    "TorchScript": save_torchscript,
    "torch.export": save_exported,
    "ONNX Runtime": save_onnx,
    "Caffe": save_caffe,
    "BigDL": save_bigdl,
}
