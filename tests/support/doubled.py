"""Models of a single float32 number per record, `x` [?] → `y` [?], twice that, in the formats that can say so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import model_zoo


def save_openvino(folder: Path) -> None:
    ops = model_zoo.digits().ops
    x = ops.parameter([-1], np.float32)
    model_zoo.save_openvino(folder, {"x": x}, {"y": ops.add(x, x)})


def save_savedmodel(folder: Path) -> None:
    import tensorflow as tf

    model_zoo.save_savedmodel(folder, lambda x: {"y": x + x}, tf.TensorSpec([None], tf.float32, "x"))


def save_frozen_graph(folder: Path) -> None:
    with model_zoo.graph_session() as session:
        _graph()
        model_zoo.save_frozen_graph(folder, session.graph, {"input_names": ["x"], "output_names": ["y"]})


def save_checkpoint(folder: Path) -> None:
    import tensorflow as tf

    with model_zoo.graph_session() as session:
        _graph()
        tf.compat.v1.Variable(0.0)
        model_zoo.save_checkpoint(folder, session)


def save_keras(folder: Path) -> None:
    import keras

    x = keras.Input((), name="x")
    model_zoo.save_keras(folder, keras.Model(x, keras.layers.Add(name="y")([x, x])))


def save_torchscript(folder: Path) -> None:
    import torch

    model_zoo.save_torchscript(folder, _Double(), torch.zeros(2))


def save_exported(folder: Path) -> None:
    import torch

    model_zoo.save_exported(folder, _Double(), torch.zeros(2), dynamic_shapes=({0: torch.export.Dim("batch")},))


def save_onnx(folder: Path) -> None:
    from onnx import helper

    node = helper.make_node("Add", ["x", "x"], ["y"])
    model_zoo.save_onnx(folder, [node], {"x": ("FLOAT", ["n"])}, {"y": ("FLOAT", ["n"])})


def _graph() -> None:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None], "x")
    tf.add(x, x, name="y")


def _Double() -> Any:  # noqa: N802
    import torch

    class Double(torch.nn.Module):
        def forward(self, x):
            return x + x

    return Double()


SAVERS: dict[str, Callable[[Path], None]] = {
    "OpenVINO": save_openvino,
    "TensorFlow": save_savedmodel,
    "TensorFlow frozen graph": save_frozen_graph,
    "TensorFlow checkpoint": save_checkpoint,
    "Keras": save_keras,
    "TorchScript": save_torchscript,
    "torch.export": save_exported,
    "ONNX Runtime": save_onnx,
}
