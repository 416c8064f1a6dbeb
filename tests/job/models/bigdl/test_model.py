from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cluster_serving.job.models import load_model
from cluster_serving.job.models.bigdl.format import read
from cluster_serving.job.models.bigdl.layers import LAYERS
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import InferenceFailed, ModelError
from tests.support.payloads import model_zoo
from tests.support.payloads.writers import bigdl_graph, bigdl_module, save_bigdl

RNG = np.random.default_rng(0)
PADS = [0, 1, -1]


GOLDEN = Path(__file__).parent / "golden-0.13"
"""Files that BigDL wrote, what it answers, and the program that made them."""


def load(folder, **options):
    return load_model(ModelOptions(str(folder), **options))


def random(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def served(folder, *modules, x):
    """What a sequence of modules makes of x, as a model that is loaded from its file."""
    save_bigdl(folder, bigdl_module("Sequential", modules=modules))
    (y,) = load(folder).predict([x])
    assert y.dtype == x.dtype
    return y


def same(x, size, stride, fill=0.0):
    """Pad as TensorFlow's SAME does."""
    pads = []
    for length in (x.shape[3], x.shape[2]):
        total = max(0, (-(-length // stride) - 1) * stride + size - length)
        pads += [total // 2, total - total // 2]
    return torch.nn.functional.pad(x, pads, value=fill)


@pytest.mark.parametrize("name", ["sequential", "graph"])
def test_files_that_bigdl_wrote_are_answered_as_bigdl_does(tmp_path, name):
    (tmp_path / "net.model").write_bytes((GOLDEN / f"{name}.model").read_bytes())
    case = json.loads((GOLDEN / "answers.json").read_text())[name]
    model = load(tmp_path)
    assert [spec.name for spec in model.outputs] == list(case["outputs"])
    answers = model.predict([np.array(values, np.float32) for values in case["inputs"].values()])
    for answer, expected in zip(answers, case["outputs"].values(), strict=True):
        np.testing.assert_allclose(answer, np.array(expected, np.float32), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("groups", "nhwc"), [(1, 0), (1, 1), (2, 0)])  # BigDL has no groups in NHWC
@pytest.mark.parametrize(("pad", "bias"), [*itertools.product(PADS, [True, False])])
def test_convolution(tmp_path, groups, pad, bias, nhwc):
    w, b, x = random(groups, 6 // groups, 4 // groups, 3, 3), random(6), random(3, 4, 9, 8)
    sizes = {"kernelW": 3, "kernelH": 3, "strideW": 2, "strideH": 2, "padW": pad, "padH": pad, "nGroup": groups}
    stored = w.transpose(0, 3, 4, 2, 1) if nhwc else w
    parameters = [stored, b] if bias else [stored]
    module = bigdl_module("SpatialConvolution", "conv", sizes | {"format": nhwc, "withBias": bias}, parameters)
    y = served(tmp_path, module, x=np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if nhwc else x)
    t = same(torch.from_numpy(x), 3, 2) if pad == -1 else torch.from_numpy(x)
    kernel = torch.from_numpy(w.reshape(6, 4 // groups, 3, 3))
    expected = torch.conv2d(t, kernel, torch.from_numpy(b) if bias else None, 2, max(pad, 0), groups=groups).numpy()
    np.testing.assert_allclose(y.transpose(0, 3, 1, 2) if nhwc else y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("pad", "ceil", "nhwc"), [*itertools.product(PADS, [True, False], [0, 1])])
def test_max_pooling(tmp_path, pad, ceil, nhwc):
    x = random(3, 4, 9, 8) - 5
    sizes = {"kW": 3, "kH": 3, "dW": 2, "dH": 2, "padW": pad, "padH": pad, "ceil_mode": ceil, "format": nhwc}
    y = served(tmp_path, bigdl_module("SpatialMaxPooling", "", sizes), x=x.transpose(0, 2, 3, 1).copy() if nhwc else x)
    t = torch.from_numpy(x)
    pool = torch.nn.functional.max_pool2d
    expected = pool(same(t, 3, 2, -np.inf), 3, 2) if pad == -1 else pool(t, 3, 2, pad, ceil_mode=ceil)
    np.testing.assert_array_equal(y.transpose(0, 3, 1, 2) if nhwc else y, expected.numpy())


@pytest.mark.parametrize(("pad", "ceil", "included"), [*itertools.product([0, 1], [True, False], [True, False])])
def test_average_pooling(tmp_path, pad, ceil, included):
    x = random(3, 4, 9, 8)
    sizes = {"kW": 3, "kH": 3, "dW": 2, "dH": 2, "padW": pad, "padH": pad, "ceilMode": ceil, "format": 0}
    module = bigdl_module("SpatialAveragePooling", "", sizes | {"countIncludePad": included, "divide": True})
    expected = torch.nn.functional.avg_pool2d(torch.from_numpy(x), 3, 2, pad, ceil, included).numpy()
    np.testing.assert_allclose(served(tmp_path, module, x=x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("included", [True, False])
def test_average_pooling_that_keeps_the_size(tmp_path, included):
    x = random(3, 4, 9, 8)
    sizes = {"kW": 3, "kH": 3, "dW": 2, "dH": 2, "padW": -1, "padH": -1, "ceilMode": False, "format": 0}
    module = bigdl_module("SpatialAveragePooling", "", sizes | {"countIncludePad": included, "divide": True})
    y = served(tmp_path, module, x=x)
    assert y.shape == (3, 4, 5, 4)
    # SAME pads a row on either side, and a column behind the image, which BigDL does not count.
    rows, columns = 2 if not included else 3, 2
    np.testing.assert_allclose(y[:, :, 0, 0], x[:, :, :2, :3].sum((2, 3)) / (3 * rows), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y[:, :, 1, 3], x[:, :, 1:4, 6:].sum((2, 3)) / (3 * columns), rtol=1e-5, atol=1e-6)


def test_average_pooling_of_the_whole_image_and_without_division(tmp_path):
    x = random(3, 4, 9, 8)
    sizes = {"kW": 2, "kH": 2, "dW": 1, "dH": 1, "padW": 0, "padH": 0, "ceilMode": False, "countIncludePad": True}
    module = bigdl_module("SpatialAveragePooling", "", sizes | {"globalPooling": True, "divide": True})
    np.testing.assert_allclose(served(tmp_path, module, x=x)[:, :, 0, 0], x.mean((2, 3)), rtol=1e-5, atol=1e-6)
    module = bigdl_module("SpatialAveragePooling", "", sizes | {"globalPooling": True, "divide": False})
    np.testing.assert_allclose(served(tmp_path, module, x=x)[:, :, 0, 0], x.sum((2, 3)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "shape"), [("BatchNormalization", (5, 4)), ("SpatialBatchNormalization", (5, 4, 3, 2))]
)
@pytest.mark.parametrize("affine", [True, False])
def test_normalization(tmp_path, kind, shape, affine):
    mean, variance, w, b = random(4), np.abs(random(4)), random(4), random(4)
    attributes = {"nOutput": 4, "eps": 1e-3, "runningMean": mean, "runningVar": variance, "dataFormat": 0}
    module = bigdl_module(kind, "", attributes, [w, b] if affine else [])
    x = random(*shape)
    arrays = [torch.from_numpy(a) for a in (x, mean, variance, w, b)]
    expected = torch.nn.functional.batch_norm(*(arrays if affine else arrays[:3]), eps=1e-3).numpy()
    np.testing.assert_allclose(served(tmp_path, module, x=x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("ReLU", torch.relu),
        ("ReLU6", torch.nn.functional.relu6),
        ("Tanh", torch.tanh),
        ("Sigmoid", torch.sigmoid),
        ("SoftMax", lambda x: torch.softmax(x, 1)),
        ("LogSoftMax", lambda x: torch.log_softmax(x, 1)),
        ("Dropout", lambda x: x),
        ("Identity", lambda x: x),
    ],
)
@pytest.mark.parametrize("shape", [(4, 6), (2, 5, 3, 3)])
def test_functions(tmp_path, kind, function, shape):
    x = random(*shape) * 100
    y = served(tmp_path, bigdl_module(kind), x=x)
    np.testing.assert_allclose(y, function(torch.from_numpy(x)).numpy(), rtol=1e-5, atol=1e-6)
    assert not np.shares_memory(x, y)


@pytest.mark.parametrize("batch", [1, 2, 12])
@pytest.mark.parametrize(
    ("kind", "attributes", "shape"),
    [
        ("Reshape", {"size": [4, 3], "batchMode": 2}, (4, 3)),
        ("Reshape", {"size": [12], "batchMode": 0}, (12,)),
        ("View", {"sizes": [12]}, (12,)),
        ("View", {"sizes": [-1, 12]}, (12,)),
        ("InferReshape", {"size": [-1, 3], "batchMode": True}, (4, 3)),
        ("InferReshape", {"size": [0, 6, -1], "batchMode": True}, (2, 6, 1)),
        ("InferReshape", {"size": [0, -1], "batchMode": False}, (12,)),
    ],
)
def test_shapes_keep_the_batch(tmp_path, kind, attributes, shape, batch):
    x = random(batch, 2, 6)
    y = served(tmp_path, bigdl_module(kind, "", attributes), x=x)
    np.testing.assert_array_equal(y, x.reshape(batch, *shape))


def test_branches(tmp_path):
    branches = bigdl_module("Tanh"), bigdl_module("Identity")
    x = random(3, 4)
    expected = np.concatenate([np.tanh(x), x], 1)
    for last in (
        {"dimension": 1, "nInputDims": 1},
        {"dimension": 2, "nInputDims": 0},
        {"dimension": -1, "nInputDims": 0},
    ):
        table = bigdl_module("ConcatTable", modules=branches)
        y = served(tmp_path, table, bigdl_module("JoinTable", "", last), x=x)
        np.testing.assert_allclose(y, expected, rtol=1e-6)
    y = served(tmp_path, bigdl_module("Concat", "", {"dimension": 2}, modules=branches), x=x)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    y = served(tmp_path, bigdl_module("ConcatTable", modules=branches), bigdl_module("CAddTable"), x=x)
    np.testing.assert_allclose(y, np.tanh(x) + x, rtol=1e-6)


def test_a_graph_has_named_inputs_and_outputs(tmp_path):
    w, b = random(2, 3), random(2)
    nodes = [
        bigdl_module("CAddTable", "sum", previous=["linear", "b"]),
        bigdl_module("Linear", "linear", parameters=[w, b], previous=["a"]),  # in no particular order
        bigdl_module("Input", "a"),
        bigdl_module("Input", "b"),
        bigdl_module("ConcatTable", "both", previous=["sum"], modules=[bigdl_module("Tanh"), bigdl_module("ReLU")]),
        bigdl_module("Identity", "second", previous=["both"]),
    ]
    graph = bigdl_graph(nodes, ["a", "b"], ["sum", "second"], second={"both": 2})
    save_bigdl(tmp_path, graph)
    x, y = random(5, 3), random(5, 2)
    model = load(tmp_path, input_shapes=((3,), (2,)))
    assert list(map(str, model.inputs)) == ["a: float32[?, 3]", "b: float32[?, 2]"]
    assert [spec.name for spec in model.outputs] == ["sum", "second"]
    total, second = model.predict([x, y])
    np.testing.assert_allclose(total, x @ w.T + b + y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, np.maximum(total, 0))
    (again,) = load(tmp_path, inputs=("b", "a"), outputs=("second",)).predict([y, x])
    np.testing.assert_array_equal(again, second)


def test_double_precision_stays(tmp_path):
    w, x = random(2, 3).astype(np.float64), random(4, 3).astype(np.float64)
    np.testing.assert_allclose(served(tmp_path, bigdl_module("Linear", "l", {}, [w]), x=x), x @ w.T, rtol=1e-12)


def test_a_tensor_without_dimensions_is_read(tmp_path):
    module = bigdl_module("ReLU", "r", {"scale": np.array(1.5, np.float32)})
    save_bigdl(tmp_path, module)
    assert read((tmp_path / "net.model").read_bytes()).attributes["scale"].item() == 1.5
    x = random(2, 3)
    np.testing.assert_array_equal(served(tmp_path, module, x=x), np.maximum(x, 0))


def test_unknown_layers_are_refused_by_name(tmp_path):
    inner = bigdl_module("Sequential", modules=[bigdl_module("LSTM"), bigdl_module("ReLU"), bigdl_module("LSTM")])
    keras = bigdl_module("Dense", package="com.intel.analytics.bigdl.nn.keras")
    save_bigdl(tmp_path, bigdl_module("Sequential", modules=[inner, keras]))
    with pytest.raises(ModelError) as caught:
        load(tmp_path)
    package = "com.intel.analytics.bigdl.nn"
    assert f"cannot be served: {package}.LSTM, {package}.keras.Dense. Those that can" in str(caught.value)
    assert "SpatialConvolution" in str(caught.value)


def test_the_package_of_version_2_is_known(tmp_path):
    x = random(2, 3)
    y = served(tmp_path, bigdl_module("Tanh", package="com.intel.analytics.bigdl.dllib.nn"), x=x)
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-6)


def test_weights_in_another_file_are_refused(tmp_path):
    module = bigdl_module("Linear", "l", parameters=[random(2, 2)])
    save_bigdl(tmp_path, module._replace(storages=[]))
    with pytest.raises(ModelError, match=r"net\.model is not a BigDL module .*: its weights are in another file"):
        load(tmp_path)


def test_a_loop_is_refused(tmp_path):
    nodes = [bigdl_module("ReLU", "a", previous=["b"]), bigdl_module("ReLU", "b", previous=["a"])]
    save_bigdl(tmp_path, bigdl_graph(nodes, ["a"], ["b"]))
    with pytest.raises(ModelError, match="its graph has a loop: b → a → b"):
        load(tmp_path)


def test_a_node_that_the_graph_lacks_is_refused(tmp_path):
    save_bigdl(tmp_path, bigdl_graph([bigdl_module("ReLU", "a", previous=["b"])], ["a"], ["a"]))
    with pytest.raises(ModelError, match="its graph has no node 'b'"):
        load(tmp_path)


def test_a_graph_may_be_a_long_chain(tmp_path):
    nodes = [bigdl_module("Input", "0")]
    nodes += [bigdl_module("Identity", str(number), previous=[str(number - 1)]) for number in range(1, 3000)]
    save_bigdl(tmp_path, bigdl_graph(nodes, ["0"], ["2999"]))
    x = random(2, 3)
    np.testing.assert_array_equal(load(tmp_path).predict([x])[0], x)


def test_modules_in_modules_without_end_are_refused(tmp_path):
    module = bigdl_module("Tanh")
    for _ in range(1000):
        module = bigdl_module("Sequential", modules=[module])
    save_bigdl(tmp_path, module)
    with pytest.raises(ModelError, match=r"net\.model is not a BigDL module that can be served: it is not a protobuf"):
        load(tmp_path)


@pytest.mark.parametrize("last", ["ConcatTable", "StaticGraph"])
def test_the_outputs_of_a_sequence_are_numbered(tmp_path, last):
    branches = [bigdl_module("Tanh", "t", previous=["x"]), bigdl_module("ReLU", "r", previous=["x"])]
    if last == "ConcatTable":
        module = bigdl_module("ConcatTable", modules=branches)
    else:
        module = bigdl_graph([bigdl_module("Input", "x"), *branches], ["x"], ["t", "r"])
    inner = bigdl_module("Sequential", modules=[module, bigdl_module("Identity")])
    save_bigdl(tmp_path, bigdl_module("Sequential", modules=[inner, bigdl_module("Dropout")]))
    model = load(tmp_path)
    assert list(map(str, model.outputs)) == ["output_0: float32[...]", "output_1: float32[...]"]
    x = random(2, 3)
    np.testing.assert_allclose(model.predict([x])[1], np.maximum(x, 0))
    np.testing.assert_allclose(load(tmp_path, outputs=("output_1",)).predict([x])[0], np.maximum(x, 0))


def test_damage_anywhere_is_an_error_or_another_number_but_never_a_crash(tmp_path):
    model_zoo.save_bigdl_digits(tmp_path)
    path, x = tmp_path / "net.model", np.zeros((1, 64), np.float32)
    content = path.read_bytes()
    for _ in range(200):
        damaged = bytearray(content)
        for position in RNG.integers(0, len(content), 3):
            damaged[position] = RNG.integers(0, 256)
        path.write_bytes(damaged[: RNG.integers(len(content) // 2, len(content) + 1)])
        try:
            (output,) = load(tmp_path).predict([x])
        except (ModelError, InferenceFailed) as error:
            assert str(error)
        else:
            assert len(output) == 1


def test_every_layer_is_tested():
    tested = {"Sequential", "StaticGraph", "Graph", "SpatialShareConvolution", "Input"}
    source = Path(__file__).read_text("utf-8")
    assert [name for name in LAYERS if name not in tested and f'"{name}"' not in source] == []
