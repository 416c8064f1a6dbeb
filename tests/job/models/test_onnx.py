from __future__ import annotations

import os

import numpy as np
import pytest
from onnx import helper

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from tests.support import model_zoo

A, B = np.full((3, 2), 5, np.float32), np.full((3, 2), 2, np.float32)


def load(folder, **options):
    return load_model(ModelOptions(str(folder), **options))


def save_two(folder):
    nodes = [helper.make_node("Sub", ["b", "a"], ["difference"]), helper.make_node("Mul", ["a", "b"], ["product"])]
    ports = ("FLOAT", ["n", 2])
    model_zoo.save_onnx(folder, nodes, {"b": ports, "a": ports}, {"product": ports, "difference": ports})


def test_inputs_and_outputs_are_in_the_order_of_the_model_or_of_the_options(tmp_path):
    save_two(tmp_path)
    model = load(tmp_path)
    assert list(map(str, model.inputs)) == ["b: float32[?, 2]", "a: float32[?, 2]"]
    assert [spec.name for spec in model.outputs] == ["product", "difference"]
    np.testing.assert_array_equal(model.predict([B, A])[1], B - A)
    (difference,) = load(tmp_path, inputs=("a", "b"), outputs=("difference",)).predict([A, B])
    np.testing.assert_array_equal(difference, B - A)
    with pytest.raises(ModelError, match=r"needs every one of its inputs, once: b: float32\[\?, 2\], a: float32"):
        load(tmp_path, inputs=("a",))


def test_a_fixed_batch_is_cut_and_padded_to(tmp_path):
    node = helper.make_node("Add", ["x", "x"], ["y"])
    model_zoo.save_onnx(tmp_path, [node], {"x": ("FLOAT", [4, 2])}, {"y": ("FLOAT", [4, 2])})
    model = load(tmp_path)
    for batch in (1, 4, 9):
        x = np.arange(2 * batch, dtype=np.float32).reshape(batch, 2)
        np.testing.assert_array_equal(model.predict([x])[0], 2 * x)


def test_external_data_is_read_once(tmp_path):
    table = np.random.default_rng(0).random((4096, 64), np.float32)
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    ports = {"x": ("INT64", ["n"])}, {"y": ("FLOAT", ["n", 64])}
    model_zoo.save_onnx(tmp_path, [node], *ports, {"table": table}, external=True)
    # More than once: memory that is used after it was freed may still hold what it held.
    models = [load(tmp_path) for _ in range(4)]
    os.truncate(tmp_path / "model.onnx.data", 0)  # a model that maps the file would end the process here
    for model in models:
        np.testing.assert_array_equal(model.predict([np.arange(len(table))])[0], table)


def test_missing_external_data_is_refused(tmp_path):
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    ports = {"x": ("FLOAT", ["n", 8])}, {"y": ("FLOAT", ["n", 8])}
    model_zoo.save_onnx(tmp_path, [node], *ports, {"w": np.eye(8, dtype=np.float32)}, external=True)
    (tmp_path / "model.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"ONNX Runtime cannot load .*model\.onnx: .*model\.onnx\.data"):
        load(tmp_path)


def test_types_without_a_counterpart_are_refused(tmp_path):
    node = helper.make_node("Cast", ["x"], ["y"], to=16)
    model_zoo.save_onnx(tmp_path, [node], {"x": ("FLOAT", ["n", 2])}, {"y": ("BFLOAT16", ["n", 2])})
    with pytest.raises(ModelError, match=r"'y' is of type tensor\(bfloat16\), which has no counterpart in numpy"):
        load(tmp_path)


def test_strings_go_in_and_come_out(tmp_path):
    node = helper.make_node("Identity", ["x"], ["y"])
    model_zoo.save_onnx(tmp_path, [node], {"x": ("STRING", ["n"])}, {"y": ("STRING", ["n"])})
    model = load(tmp_path)
    assert list(map(str, model.inputs)) == ["x: str[?]"]
    assert model.predict([np.array(["", "zwölf"], object)])[0].tolist() == ["", "zwölf"]
    assert model.warm_up(2) is not None
