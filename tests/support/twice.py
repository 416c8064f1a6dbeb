"""Models of one operation in every format: one that repeats its input, one that doubles numbers, one for images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import model_zoo, writers

Shape = tuple[int, ...]

# ONNX element types; the other engines use numpy's names.
ONNX = {"float32": "FLOAT", "int64": "INT64", "uint8": "UINT8", "bool": "BOOL", "str": "STRING"}


def save_openvino(folder: Path, dtype: str, shape: Shape = (3,)) -> None:
    ops = model_zoo.digits().ops
    x = ops.parameter([-1, *shape], np.dtype(dtype).type)
    model_zoo.save_openvino(folder, {"x": x}, {"y": ops.concat([x, x], 1)})


def save_savedmodel(folder: Path, dtype: str, shape: Shape = (3,)) -> None:
    import tensorflow as tf

    spec = tf.TensorSpec([None, *shape], _tf(dtype), "x")
    model_zoo.save_savedmodel(folder, lambda x: {"y": tf.concat([x, x], 1)}, spec)


def save_frozen_graph(folder: Path, dtype: str, shape: Shape = (3,)) -> None:
    with model_zoo.graph_session() as session:
        _graph(dtype, shape)
        model_zoo.save_frozen_graph(folder, session.graph, {"input_names": ["x"], "output_names": ["y"]})


def save_checkpoint(folder: Path, dtype: str, shape: Shape = (3,)) -> None:
    import tensorflow as tf

    with model_zoo.graph_session() as session:
        _graph(dtype, shape)
        tf.compat.v1.Variable(0.0)
        model_zoo.save_checkpoint(folder, session)


def save_keras(folder: Path, dtype: str, shape: Shape = (3,)) -> None:
    import keras

    x = keras.Input(shape, dtype=dtype, name="x")
    model_zoo.save_keras(folder, keras.Model(x, keras.layers.Concatenate(1, name="y", dtype=dtype)([x, x])))


def save_torchscript(folder: Path, dtype: str, shape: Shape = (3,)) -> None:
    import torch

    model_zoo.save_torchscript(folder, _Twice(), torch.zeros(2, *shape, dtype=getattr(torch, dtype)))


def save_exported(folder: Path, dtype: str, shape: Shape = (3,)) -> None:
    import torch

    batch = {0: torch.export.Dim("batch")}
    example = torch.zeros(2, *shape, dtype=getattr(torch, dtype))
    model_zoo.save_exported(folder, _Twice(), example, dynamic_shapes=(batch,))


def save_onnx(folder: Path, dtype: str, shape: Shape = (3,)) -> None:
    from onnx import helper

    node = helper.make_node("Concat", ["x", "x"], ["y"], axis=1)
    model_zoo.save_onnx(
        folder, [node], {"x": (ONNX[dtype], ["n", *shape])}, {"y": (ONNX[dtype], ["n", 2 * shape[0], *shape[1:]])}
    )


def save_caffe(folder: Path, dtype: str, shape: Shape = (3,)) -> None:
    text = f'input: "x"\ninput_shape {{ dim: 1 {" ".join(f"dim: {size}" for size in shape)} }}\n'
    text += 'layer { name: "y" type: "Concat" bottom: "x" bottom: "x" top: "y" }\n'
    writers.save_caffe(folder, text, {})


def save_bigdl(folder: Path, dtype: str, shape: Shape = (3,)) -> None:
    both = writers.bigdl_module("Identity"), writers.bigdl_module("Identity")
    writers.save_bigdl(folder, writers.bigdl_module("Concat", "y", {"dimension": 2}, modules=both))


def _tf(dtype: str) -> Any:
    import tensorflow as tf

    return tf.string if dtype == "str" else tf.as_dtype(dtype)


def _graph(dtype: str, shape: Shape) -> None:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(_tf(dtype), [None, *shape], "x")
    tf.concat([x, x], 1, name="y")


def _Twice() -> Any:  # noqa: N802
    import torch

    class Twice(torch.nn.Module):
        def forward(self, x):
            return torch.cat([x, x], 1)

    return Twice()


NUMBERS = ("float32", "int64", "uint8", "bool")
ALL = (*NUMBERS, "str")
ENGINES: dict[str, tuple[Callable[[Path, str], None], tuple[str, ...]]] = {
    "OpenVINO": (save_openvino, NUMBERS),
    "TensorFlow": (save_savedmodel, ALL),
    "TensorFlow frozen graph": (save_frozen_graph, ALL),
    "TensorFlow checkpoint": (save_checkpoint, ALL),
    "Keras": (save_keras, NUMBERS),
    "TorchScript": (save_torchscript, NUMBERS),
    "torch.export": (save_exported, NUMBERS),
    "ONNX Runtime": (save_onnx, ALL),
    "Caffe": (save_caffe, ("float32",)),
    "BigDL": (save_bigdl, ("float32",)),
}
