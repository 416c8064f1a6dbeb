"""The rows of docs/explanation/where-libraries-differ.md, with the installed versions."""

import catboost
import lightgbm
import numpy as np
import onnxruntime
import openvino
import pandas as pd
import pytest
import torch
import xgboost
from onnx import TensorProto, helper
from PIL import Image
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor

FLOAT, INT32, INT64, UINT8 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8


def test_a_missing_value_that_no_training_has_seen():
    # Twice as many rows are above 10, where the answer is 1.
    x = np.r_[np.linspace(5, 9.9, 100), np.linspace(10, 20, 200)][:, None]
    y = (x[:, 0] >= 10).astype(float)
    models = {
        "xgboost": xgboost.XGBRegressor(n_estimators=1, learning_rate=1.0, n_jobs=1, base_score=0.0),
        "lightgbm": lightgbm.LGBMRegressor(n_estimators=1, learning_rate=1.0, n_jobs=1, verbose=-1),
        "catboost": catboost.CatBoostRegressor(
            iterations=1, learning_rate=1.0, thread_count=1, verbose=False, allow_writing_files=False
        ),
        "histograms": HistGradientBoostingRegressor(max_iter=1, learning_rate=1.0),
        "tree": DecisionTreeRegressor(),
    }
    hole = np.array([[np.nan]])
    answers = {name: bool(model.fit(x, y).predict(hole)[0] > 0.5) for name, model in models.items()}
    assert answers == {"xgboost": True, "lightgbm": False, "catboost": False, "histograms": True, "tree": True}


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_categories_in_another_order_have_other_codes_and_the_same_answers(library):
    colours = np.array(["blue", "green", "red"])[np.arange(120) % 3]
    frame = pd.DataFrame({"colour": pd.Categorical(colours)})
    y = np.arange(120) % 3 * 10.0
    if library == "xgboost":
        model = xgboost.XGBRegressor(n_estimators=5, n_jobs=1, enable_categorical=True).fit(frame, y)
    else:
        model = lightgbm.LGBMRegressor(n_estimators=5, n_jobs=1, min_data_per_group=1, verbose=-1).fit(frame, y)
    other = pd.DataFrame({"colour": pd.Categorical(colours, categories=["red", "green", "blue"])})
    assert (other.colour.cat.codes != frame.colour.cat.codes).any()
    np.testing.assert_allclose(model.predict(other), model.predict(frame))


def both(nodes, feeds, shapes, output, constants=()):
    """Return what ONNX Runtime and OpenVINO answer; None for an error."""
    inputs = [helper.make_tensor_value_info(name, *shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", *output)], list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    try:
        (first,) = session.run(None, feeds)
    except Exception:
        first = None
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(model), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return first, compiled(feeds)[0]


def test_division_of_whole_numbers_by_zero():
    shapes = {"a": (INT32, ["n"]), "b": (INT32, ["n"])}
    feeds = {"a": np.array([1, -7], "i4"), "b": np.array([0, 2], "i4")}
    first, second = both([helper.make_node("Div", ["a", "b"], ["y"])], feeds, shapes, (INT32, ["n"]))
    assert first is None
    assert second.tolist() == [-(2**31), -3]


def test_an_index_out_of_range():
    table = helper.make_tensor("table", FLOAT, [4, 2], np.arange(1.0, 9))
    node = helper.make_node("Gather", ["table", "i"], ["y"])
    feeds = {"i": np.array([0, 9, -9])}
    first, second = both([node], feeds, {"i": (INT64, ["n"])}, (FLOAT, ["n", 2]), [table])
    assert first is None
    assert second.tolist() == [[1, 2], [0, 0], [0, 0]]


def test_relu_of_nan():
    feeds = {"a": np.array([np.nan, -1, 2], "f4")}
    first, second = both([helper.make_node("Relu", ["a"], ["y"])], feeds, {"a": (FLOAT, ["n"])}, (FLOAT, ["n"]))
    np.testing.assert_array_equal(first, [np.nan, 0, 2])
    np.testing.assert_array_equal(second, [0, 0, 2])


def test_a_cast_of_numbers_that_uint8_does_not_hold():
    node = helper.make_node("Cast", ["a"], ["y"], to=UINT8)
    feeds = {"a": np.array([-1, 300, 256.5, 3], "f4")}
    first, second = both([node], feeds, {"a": (FLOAT, ["n"])}, (UINT8, ["n"]))
    assert first.tolist() == [255, 44, 0, 3]
    assert second.tolist() == [0, 255, 255, 3]
    whole = {"a": np.array([-1, 300, 256, 3], "i4")}
    for found in both([node], whole, {"a": (INT32, ["n"])}, (UINT8, ["n"])):
        assert found.tolist() == [255, 44, 0, 3]


def test_equal_values_of_topk():
    node = helper.make_node("TopK", ["a", "k"], ["values", "y"])
    feeds = {"a": np.array([[2, 1, 1, 0, 0, 0, 0, 0]], "f4")}
    size = helper.make_tensor("k", INT64, [1], [3])
    first, second = both([node], feeds, {"a": (FLOAT, ["n", 8])}, (INT64, ["n", 3]), [size])
    # The first place of each value comes first in ONNX Runtime alone.
    assert (first.tolist(), second.tolist()) == ([[0, 1, 2]], [[0, 2, 1]])


def test_the_number_of_kept_sizes_is_taken():
    node = helper.make_node("Relu", ["a"], ["y"])
    ports = [helper.make_tensor_value_info(name, FLOAT, ["n"]) for name in "ay"]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    core = openvino.Core()
    assert "CPU_RUNTIME_CACHE_CAPACITY" not in core.get_property("CPU", "SUPPORTED_PROPERTIES")
    core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"CPU_RUNTIME_CACHE_CAPACITY": "64"})


@pytest.mark.parametrize(
    ("name", "kind", "most", "share"), [("bilinear", "bilinear", 1, 0.04), ("bicubic", "bicubic", 2, 0.01)]
)
def test_pixels_of_torchvision_and_of_pillow(name, kind, most, share):
    """The call of `torchvision.transforms.v2.functional.resize`."""
    noise = np.random.default_rng(1).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    tensor = torch.from_numpy(noise).permute(2, 0, 1)[None]
    scaled = torch.nn.functional.interpolate(tensor, (224, 224), mode=kind, align_corners=False, antialias=True)
    other = Image.fromarray(noise).resize((224, 224), Image.Resampling[name.upper()])
    difference = np.abs(scaled[0].permute(1, 2, 0).numpy().astype(int) - np.asarray(other))
    assert 0 < difference.max() <= most and (difference > 0).mean() <= share


def test_the_nearest_pixel_of_torchvision_is_another():
    noise = np.random.default_rng(1).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    tensor = torch.from_numpy(noise).permute(2, 0, 1)[None]
    scaled = torch.nn.functional.interpolate(tensor, (224, 224), mode="nearest")[0].permute(1, 2, 0).numpy()
    assert (scaled != np.asarray(Image.fromarray(noise).resize((224, 224), Image.Resampling.NEAREST))).any()
