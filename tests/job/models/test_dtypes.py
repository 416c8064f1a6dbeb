"""Every engine, every dtype it knows: what goes in comes out, of the same dtype, for any batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.client.errors import InferenceFailed
from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from tests import model_zoo
from tests.job.models import writers

# ONNX element types; the other engines use numpy's names.
ONNX = {"float32": "FLOAT", "int64": "INT64", "uint8": "UINT8", "bool": "BOOL", "str": "STRING"}


def save_openvino(folder: Path, dtype: str) -> None:
    ops = model_zoo.digits().ops
    x = ops.parameter([-1, 3], np.dtype(dtype).type)
    model_zoo.save_openvino(folder, {"x": x}, {"y": ops.concat([x, x], 1)})


def save_savedmodel(folder: Path, dtype: str) -> None:
    import tensorflow as tf

    spec = tf.TensorSpec([None, 3], _tf(dtype), "x")
    model_zoo.save_savedmodel(folder, lambda x: {"y": tf.concat([x, x], 1)}, spec)


def save_frozen_graph(folder: Path, dtype: str) -> None:
    with model_zoo.graph_session() as session:
        _graph(dtype)
        model_zoo.save_frozen_graph(folder, session.graph, {"input_names": ["x"], "output_names": ["y"]})


def save_checkpoint(folder: Path, dtype: str) -> None:
    import tensorflow as tf

    with model_zoo.graph_session() as session:
        _graph(dtype)
        tf.compat.v1.Variable(0.0)
        model_zoo.save_checkpoint(folder, session)


def save_keras(folder: Path, dtype: str) -> None:
    import keras

    x = keras.Input((3,), dtype=dtype, name="x")
    model_zoo.save_keras(folder, keras.Model(x, keras.layers.Concatenate(name="y", dtype=dtype)([x, x])))


def save_torchscript(folder: Path, dtype: str) -> None:
    import torch

    model_zoo.save_torchscript(folder, _Twice(), torch.zeros(2, 3, dtype=getattr(torch, dtype)))


def save_exported(folder: Path, dtype: str) -> None:
    import torch

    batch = {0: torch.export.Dim("batch")}
    example = torch.zeros(2, 3, dtype=getattr(torch, dtype))
    model_zoo.save_exported(folder, _Twice(), example, dynamic_shapes=(batch,))


def save_onnx(folder: Path, dtype: str) -> None:
    from onnx import helper

    node = helper.make_node("Concat", ["x", "x"], ["y"], axis=1)
    model_zoo.save_onnx(folder, [node], {"x": (ONNX[dtype], ["n", 3])}, {"y": (ONNX[dtype], ["n", 6])})


def save_caffe(folder: Path, dtype: str) -> None:
    text = 'input: "x"\ninput_shape { dim: 1 dim: 3 }\n'
    text += 'layer { name: "y" type: "Concat" bottom: "x" bottom: "x" top: "y" }\n'
    writers.save_caffe(folder, text, {})


def save_bigdl(folder: Path, dtype: str) -> None:
    both = writers.bigdl_module("Identity"), writers.bigdl_module("Identity")
    writers.save_bigdl(folder, writers.bigdl_module("Concat", "y", {"dimension": 2}, modules=both))


def _tf(dtype: str) -> Any:
    import tensorflow as tf

    return tf.string if dtype == "str" else tf.as_dtype(dtype)


def _graph(dtype: str) -> None:
    import tensorflow as tf

    x = tf.compat.v1.placeholder(_tf(dtype), [None, 3], "x")
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
VALUES = {
    "float32": [[0.5, -2.25, np.inf], [np.nan, 1e-38, 3.0]],
    "int64": [[1 << 62, -(1 << 62) + 1, 0], [1, 2, 3]],
    "uint8": [[0, 255, 128], [1, 2, 3]],
    "bool": [[True, False, True], [False, False, True]],
    "str": [["", "zwölf", "two words"], ["a", "b", "ü" * 300]],
}
# On a CPU OpenVINO computes int64 as int32.
SMALL = [[(1 << 31) - 1, -(1 << 31), 0], [1, 2, 3]]


@pytest.mark.parametrize(("engine", "dtype"), [(e, d) for e, (_, dtypes) in ENGINES.items() for d in dtypes])
def test_values_pass_unchanged(tmp_path, engine, dtype):
    ENGINES[engine][0](tmp_path, dtype)
    model = load_model(ModelOptions(str(tmp_path)))
    assert model.engine == engine
    if model.inputs[0].dtype:
        assert model.inputs[0].dtype == dtype
    for batch in (1, 3, 32):
        values = SMALL if engine == "OpenVINO" and dtype == "int64" else VALUES[dtype]
        x = np.array(values * 16, object if dtype == "str" else dtype)[:batch]
        (y,) = model.predict([x])
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, np.concatenate([x, x], 1))
        y[...] = x[0, 0]  # writable, and no view of what came in
        assert y.base is None or not np.shares_memory(y, x)
    model.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_other_dtypes_are_not_cast_silently(tmp_path, engine):
    ENGINES[engine][0](tmp_path, "float32")
    model = load_model(ModelOptions(str(tmp_path), input_shapes=((3,),)))
    for dtype in ("float64", "int32", "uint8", "object"):
        with pytest.raises(InferenceFailed, match=f"input '.*' is {dtype}; the model expects .*: float32"):
            model.predict([np.ones((2, 3), dtype)])
