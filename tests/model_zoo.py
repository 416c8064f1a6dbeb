"""Small real models, made in seconds, in the formats that are served; the digits come from examples/digits.py."""

from __future__ import annotations

import importlib.util
import json
import struct
import sys
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

EXAMPLES = Path(__file__).parents[1] / "examples"


@cache
def digits() -> ModuleType:
    """The example as a module."""
    # Imported first, as it keeps OpenVINO from forking this process to report home.
    import cluster_serving.job.models.openvino_ir  # noqa: F401

    spec = importlib.util.spec_from_file_location("digits", EXAMPLES / "digits.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["digits"] = module
    spec.loader.exec_module(module)
    return module


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
        text += caffe_layer("InnerProduct", x, f"z{index}", f"inner_product_param {{ num_output: {len(b)} }}")
        if index < len(hidden):
            text += caffe_layer("ReLU", f"z{index}", x := f"h{index}")
    save_caffe(folder, text + caffe_layer("Softmax", f"z{index}", "probabilities"), weights)


def save_bigdl_digits(folder: Path) -> None:
    """A graph: `x` float32 [?, 64] → `probabilities` float32 [?, 10]."""
    nodes = [bigdl_module("Input", "x")]
    *hidden, (matrix, bias) = train_digits_mlp()
    for index, (w, b) in enumerate(hidden):
        nodes.append(bigdl_module("Linear", f"z{index}", parameters=[w.T, b], previous=[f"h{index - 1}" if index else "x"]))
        nodes.append(bigdl_module("ReLU", f"h{index}", {"ip": False}, previous=[f"z{index}"]))
    nodes.append(bigdl_module("Linear", "z", parameters=[matrix.T, bias], previous=[f"h{index}"]))
    nodes.append(bigdl_module("SoftMax", "probabilities", previous=["z"]))
    save_bigdl(folder, bigdl_graph(nodes, ["x"], ["probabilities"]))


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
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    folder.mkdir(parents=True, exist_ok=True)
    data = {"save_as_external_data": True, "location": "model.onnx.data", "size_threshold": 0} if external else {}
    onnx.save_model(model, str(folder / "model.onnx"), **data)


def caffe_layer(kind: str, bottom: str, top: str, parameters: str = "") -> str:
    """One layer of a prototxt, named as what it computes."""
    return f'layer {{ name: "{top}" type: "{kind}" bottom: "{bottom}" top: "{top}" {parameters} }}\n'


def save_caffe(folder: Path, text: str, weights: dict[str, tuple[str, list[np.ndarray]]]) -> None:
    """Write a prototxt, and as caffemodel the weights: layer → its type, and its blobs.

    The fields of Caffe's messages: NetParameter.layer 100; LayerParameter.name 1, type 2, blobs 7; BlobProto.data 5,
    shape 7; BlobShape.dim 1.
    """

    def blob(array: np.ndarray) -> bytes:
        dims = b"".join(map(varint, array.shape))
        return field(7, field(1, dims)) + field(5, array.astype("<f4").tobytes())

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.prototxt").write_text(text)
    layers = [
        field(1, name.encode()) + field(2, kind.encode()) + b"".join(field(7, blob(array)) for array in blobs)
        for name, (kind, blobs) in weights.items()
    ]
    (folder / "net.caffemodel").write_bytes(b"".join(field(100, layer) for layer in layers))


def varint(number: int) -> bytes:
    """A number in protobuf's variable length."""
    data = bytearray()
    number &= (1 << 64) - 1
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def field(number: int, value: bytes | str | int) -> bytes:
    """A protobuf field: a number, or what has a length (bytes, text, a message, packed numbers)."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


class BigDLModule(NamedTuple):
    """A module of a BigDL file, without its tensors' values: `storages` has those, to be written once at the root."""

    data: bytes
    name: str
    previous: list[str]
    storages: list[tuple[int, bytes]]


def bigdl_module(
    kind: str,
    name: str = "",
    attributes: dict[str, Any] | None = None,
    parameters: Sequence[np.ndarray] = (),
    previous: Sequence[str] = (),
    modules: Sequence[BigDLModule] = (),
    package: str = "com.intel.analytics.bigdl.nn",
) -> BigDLModule:
    """A module as BigDL 0.13 writes it: tensors refer to storages that the root holds."""
    storages = [storage for module in modules for storage in module.storages]
    data = field(1, name) + field(7, f"{package}.{kind}") + field(9, "0.13.0") + field(12, 7)
    data += b"".join(field(2, module.data) for module in modules) + b"".join(field(5, name) for name in previous)
    for key, value in (attributes or {}).items():
        if isinstance(value, np.ndarray):
            content = field(1, 10) + field(10, _bigdl_tensor(value, storages))
        else:
            content = bigdl_value(value)
        data += field(8, field(1, key) + field(2, content))
    if parameters:
        data += field(15, 1) + b"".join(field(16, _bigdl_tensor(array, storages)) for array in parameters)
    return BigDLModule(data, name, list(previous), storages)


def bigdl_graph(nodes: Sequence[BigDLModule], inputs: list[str], outputs: list[str], **edges: Any) -> BigDLModule:
    """A StaticGraph; `edges` has, for the nodes where it is not -1, name → previous node → element of its table."""
    attributes: dict[str, Any] = {
        f"{node.name}_edges": dict.fromkeys(node.previous, -1) | edges.get(node.name, {}) for node in nodes
    }
    attributes |= {"inputNames": inputs, "outputNames": outputs}
    return bigdl_module("StaticGraph", "graph", attributes, modules=nodes)


def bigdl_value(value: Any) -> bytes:
    """An attribute: bool, int, float, text, None, a list of ints or texts, or a dict."""
    if value is None:
        return field(1, 10)
    if isinstance(value, dict):
        entries = b"".join(field(2, field(1, key) + field(2, bigdl_value(item))) for key, item in value.items())
        return field(1, 14) + field(14, field(1, "map") + entries)
    if isinstance(value, list) and value and isinstance(value[0], str):
        return field(1, 15) + field(15, field(1, len(value)) + field(2, 4) + b"".join(field(7, v) for v in value))
    if isinstance(value, list):
        return field(1, 15) + field(15, field(1, len(value)) + field(3, b"".join(map(varint, value))))
    if isinstance(value, bool):
        return field(1, 5) + field(8, int(value))
    if isinstance(value, float):
        return field(1, 3) + varint(6 << 3 | 1) + struct.pack("<d", value)
    return field(1, 4) + field(7, value) if isinstance(value, str) else field(1, 0) + field(3, value)


def _bigdl_tensor(array: np.ndarray, storages: list[tuple[int, bytes]]) -> bytes:
    # Behind three other numbers in its storage, as when the parameters of a module share one.
    dtype, number, kind = ("<f4", 2, 2) if array.dtype == np.float32 else ("<f8", 3, 3)
    values = np.concatenate([[9, 9, 9], array.ravel()]).astype(dtype)
    key = zlib.crc32(values.tobytes()) >> 1
    storages.append((key, _bigdl_shape(array, kind) + field(8, field(1, kind) + field(number, values.tobytes()) + field(9, key))))
    return _bigdl_shape(array, kind) + field(8, field(1, kind) + field(9, key))


def _bigdl_shape(array: np.ndarray, kind: int) -> bytes:
    strides = [stride // array.itemsize for stride in np.ascontiguousarray(array).strides]
    sizes = field(2, b"".join(map(varint, array.shape))) + field(3, b"".join(map(varint, strides)))
    return field(1, kind) + sizes + field(4, 4) + field(5, array.ndim) + field(6, array.size) + field(9, 1)


def save_bigdl(folder: Path, module: BigDLModule) -> None:
    """Write a module and all its storages."""
    entries = b"".join(
        field(2, field(1, str(key)) + field(2, field(1, 10) + field(10, tensor))) for key, tensor in module.storages
    )
    storages = field(1, 14) + field(14, field(1, "global_storage") + entries)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.model").write_bytes(module.data + field(8, field(1, "global_storage") + field(2, storages)))
