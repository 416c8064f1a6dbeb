"""Small real models, made in seconds, in the formats that are served; the digits are those of the quick start."""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tests.support.payloads import writers


def digits() -> ModuleType:
    """The module that makes the quick start's model; it is loaded when it is needed, as it loads OpenVINO."""
    return importlib.import_module("cluster_serving.launcher.quickstart.digits")


@cache
def digits_data() -> tuple[np.ndarray, np.ndarray]:
    """400 digits that the models have not seen: float32 (400, 64) from 0 to 1, and their labels."""
    return digits().read()[1]


@cache
def train_digits_mlp() -> Any:
    """Weights of the network that all digit models share: a list of (matrix, bias)."""
    return digits().train(digits().read()[0])


def digits_mlp(x: np.ndarray) -> np.ndarray:
    """The same network in numpy, float32 (n, 64) → probabilities (n, 10)."""
    *hidden, (matrix, bias) = train_digits_mlp()
    for w, b in hidden:
        x = np.maximum(x @ w + b, 0)
    odds = np.exp(x @ matrix + bias)
    return odds / odds.sum(axis=1, keepdims=True)


def save_openvino_digits(folder: Path) -> None:
    """`x` float32 [?, 64] → `probabilities` float32 [?, 10]."""
    digits().save_model(folder, train_digits_mlp(), takes_images=False)


def save_openvino_digit_images(folder: Path) -> None:
    """`x` float32 [?, 3, 8, 8] from 0 to 255 → `probabilities` float32 [?, 10]."""
    digits().save_model(folder, train_digits_mlp(), takes_images=True)


@cache
def torch_digits() -> Any:
    """The network as a module: `x` float32 [?, 64] → probabilities float32 [?, 10]."""
    import torch

    class Digits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList()
            for w, b in train_digits_mlp():
                layer = torch.nn.Linear(*w.shape)
                layer.weight.data, layer.bias.data = torch.from_numpy(w.T.copy()), torch.from_numpy(b)
                self.layers.append(layer)

        def forward(self, x):
            for layer in self.layers[:-1]:
                x = torch.relu(layer(x))
            return torch.softmax(self.layers[-1](x), dim=1)

    return Digits().eval()


def save_torchscript_digits(folder: Path) -> None:
    """`x` float32 [?, 64] → probabilities float32 [?, 10]."""
    import torch

    save_torchscript(folder, torch_digits(), torch.zeros(2, 64))


def save_exported_digits(folder: Path) -> None:
    """`x` float32 [?, 64] → probabilities float32 [?, 10]."""
    import torch

    save_exported(folder, torch_digits(), torch.zeros(2, 64), dynamic_shapes=({0: torch.export.Dim("batch")},))


def save_onnx_digits(folder: Path) -> None:
    """`x` float32 [?, 64] → `probabilities` float32 [?, 10]."""
    from onnx import helper

    nodes, weights, x = [], {}, "x"
    *hidden, last = train_digits_mlp()
    for index, (w, b) in enumerate([*hidden, last]):
        weights |= {f"w{index}": w, f"b{index}": b}
        nodes.append(helper.make_node("Gemm", [x, f"w{index}", f"b{index}"], [f"z{index}"]))
        nodes.append(helper.make_node("Relu", [f"z{index}"], [x := f"h{index}"]))
    nodes[-1] = helper.make_node("Softmax", [f"z{index}"], ["probabilities"])
    save_onnx(folder, nodes, {"x": ("FLOAT", ["n", 64])}, {"probabilities": ("FLOAT", ["n", 10])}, weights)


def save_caffe_digits(folder: Path) -> None:
    """`x` float32 [?, 64] → `probabilities` float32 [?, 10]."""
    text = 'input: "x"\ninput_shape { dim: 1 dim: 64 }\n'
    weights, x = {}, "x"
    *hidden, last = train_digits_mlp()
    for index, (w, b) in enumerate([*hidden, last]):
        weights[f"z{index}"] = ("InnerProduct", [w.T, b])
        text += writers.caffe_layer("InnerProduct", x, f"z{index}", f"inner_product_param {{ num_output: {len(b)} }}")
        if index < len(hidden):
            text += writers.caffe_layer("ReLU", f"z{index}", x := f"h{index}")
    writers.save_caffe(folder, text + writers.caffe_layer("Softmax", f"z{index}", "probabilities"), weights)


def save_bigdl_digits(folder: Path) -> None:
    """A graph: `x` float32 [?, 64] → `probabilities` float32 [?, 10]."""
    nodes = [writers.bigdl_module("Input", "x")]
    *hidden, (matrix, bias) = train_digits_mlp()
    for index, (w, b) in enumerate(hidden):
        nodes.append(
            writers.bigdl_module(
                "Linear", f"z{index}", parameters=[w.T, b], previous=[f"h{index - 1}" if index else "x"]
            )
        )
        nodes.append(writers.bigdl_module("ReLU", f"h{index}", {"ip": False}, previous=[f"z{index}"]))
    nodes.append(writers.bigdl_module("Linear", "z", parameters=[matrix.T, bias], previous=[f"h{index}"]))
    nodes.append(writers.bigdl_module("SoftMax", "probabilities", previous=["z"]))
    writers.save_bigdl(folder, writers.bigdl_graph(nodes, ["x"], ["probabilities"]))


def save_savedmodel_digits(folder: Path) -> None:
    """`x` float32 [?, 64] → `probabilities` float32 [?, 10]."""
    import tensorflow as tf

    weights = [(tf.Variable(w), tf.Variable(b)) for w, b in train_digits_mlp()]

    def probabilities(x):
        for w, b in weights[:-1]:
            x = tf.nn.relu(x @ w + b)
        return {"probabilities": tf.nn.softmax(x @ weights[-1][0] + weights[-1][1])}

    save_savedmodel(folder, probabilities, tf.TensorSpec([None, 64], tf.float32, "x"), track=weights)


def save_frozen_graph_digits(folder: Path) -> None:
    """`x` float32 [?, 64] → `probabilities` float32 [?, 10]."""
    import tensorflow as tf

    with graph_session() as session:
        _digits_graph(tf.constant)
        save_frozen_graph(folder, session.graph, {"input_names": ["x:0"], "output_names": ["probabilities:0"]})


def save_checkpoint_digits(folder: Path) -> None:
    """`x` float32 [?, 64] → `probabilities` float32 [?, 10]."""
    import tensorflow as tf

    with graph_session() as session:
        _digits_graph(tf.compat.v1.Variable)
        save_checkpoint(folder, session)


def _digits_graph(weight: Any) -> None:
    import tensorflow as tf

    h = tf.compat.v1.placeholder(tf.float32, [None, 64], "x")
    *hidden, (matrix, bias) = train_digits_mlp()
    for w, b in hidden:
        h = tf.nn.relu(h @ weight(w) + weight(b))
    tf.nn.softmax(h @ weight(matrix) + weight(bias), name="probabilities")


def save_keras_digits(folder: Path, suffix: str = ".keras") -> None:
    """`x` float32 [?, 64] → `probabilities` float32 [?, 10]."""
    import keras

    *hidden, last = train_digits_mlp()
    x = h = keras.Input((64,), name="x")
    layers = [keras.layers.Dense(w.shape[1], "relu") for w, _ in hidden]
    layers.append(keras.layers.Dense(10, "softmax", name="probabilities"))
    for layer, weights in zip(layers, [*hidden, last], strict=True):
        h = layer(h)
        layer.set_weights(weights)
    save_keras(folder, keras.Model(x, h), suffix)


def save_openvino(folder: Path, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    """Write an IR from named parameters and named results of `openvino.opset13`."""
    openvino = digits().openvino
    for name, node in (inputs | outputs).items():
        node.output(0).set_names({name})
    folder.mkdir(parents=True, exist_ok=True)
    network = openvino.Model(list(outputs.values()), list(inputs.values()), "test")
    openvino.save_model(network, folder / "model.xml", compress_to_fp16=False)


def save_openvino_product(folder: Path, factor: float) -> None:
    """`x` float32 [?, 4] → `y` float32 [?, 4], a multiple of it."""
    ops = digits().openvino.opset13
    x = ops.parameter([-1, 4], np.float32)
    save_openvino(folder, {"x": x}, {"y": ops.multiply(x, ops.constant(np.float32(factor)))})


def save_torchscript(folder: Path, module: Any, *example: Any) -> None:
    """Trace a module with example inputs, or script it if there are none."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript as a whole
        script = torch.jit.trace(module.eval(), example, strict=False) if example else torch.jit.script(module.eval())
        torch.jit.save(script, str(folder / "model.pt"))


def save_savedmodel(folder: Path, function: Any, *signature: Any, track: Any = None) -> None:
    """Write a function of tensors, and the variables it tracks, as a SavedModel.

    Args:
        folder: Where to.
        function: Returns a dict of tensors.
        signature: `tf.TensorSpec` of each argument, named as the argument.
        track: Variables and tables that the function uses.
    """
    import tensorflow as tf

    module = tf.Module()
    module.track = track
    module.function = tf.function(function, input_signature=signature)
    tf.saved_model.save(module, str(folder), signatures=module.function)


@contextmanager
def graph_session() -> Iterator[Any]:
    """A TensorFlow 1 session on a graph of its own."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        yield session


def save_frozen_graph(folder: Path, graph: Any, meta: dict[str, Any], name: str = "frozen_inference_graph.pb") -> None:
    """Write a graph without variables, and what `graph_meta.json` is to hold."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(graph.as_graph_def().SerializeToString())
    (folder / "graph_meta.json").write_text(json.dumps(meta))


def save_checkpoint(folder: Path, session: Any) -> None:
    """Write the graph of a session, with initialized variables, as a checkpoint with its meta graph."""
    import tensorflow as tf

    folder.mkdir(parents=True, exist_ok=True)
    session.run(tf.compat.v1.global_variables_initializer())
    tf.compat.v1.train.Saver().save(session, str(folder / "model.ckpt"))


def save_keras(folder: Path, model: Any, suffix: str = ".keras") -> None:
    """Write a Keras model as `.keras` or `.h5`."""
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras says that .h5 is old
        model.save(folder / f"model{suffix}")


def save_exported(folder: Path, module: Any, *example: Any, **options: Any) -> None:
    """Export a module with example inputs and options of `torch.export.export`."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    torch.export.save(torch.export.export(module.eval(), example, **options), folder / "model.pt2")


def save_onnx(
    folder: Path,
    nodes: list[Any],
    inputs: dict[str, tuple[str, Any]],
    outputs: dict[str, tuple[str, Any]],
    weights: dict[str, np.ndarray] | None = None,
    external: bool = False,
) -> None:
    """Write a graph of nodes; inputs and outputs are name → (ONNX element type, shape)."""
    import onnx
    from onnx import helper, numpy_helper

    def values(ports: dict[str, tuple[str, Any]]) -> list[Any]:
        return [
            helper.make_tensor_value_info(name, getattr(onnx.TensorProto, kind), shape)
            for name, (kind, shape) in ports.items()
        ]

    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "test", values(inputs), values(outputs), tensors)
    versions = {"": 17} | {node.domain: 3 for node in nodes if node.domain}
    imports = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    onnx.checker.check_model(model)
    folder.mkdir(parents=True, exist_ok=True)
    data = {"save_as_external_data": True, "location": "model.onnx.data", "size_threshold": 0} if external else {}
    onnx.save_model(model, str(folder / "model.onnx"), **data)
