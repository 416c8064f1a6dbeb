"""What the graphs of ONNX models prove about their rows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from cluster_serving.job.models import load_model
from cluster_serving.job.models.batched import influence
from cluster_serving.job.models.graph.onnx.reader import read
from cluster_serving.job.models.graph.walk import Finding, follow
from cluster_serving.job.options import ModelOptions
from tests.support.payloads.axes_zoo import onnx_cases

node = helper.make_node
WEIGHTS = {
    "zero": np.array([0]),
    "one": np.array([1]),
    "last": np.array([-1]),
    "end": np.array([2**31 - 1]),
    "four": np.array([4]),
    "rest": np.array([0, -1]),
    "w": np.ones((4, 4), np.float32),
    "nothing": np.zeros((1, 4), np.float32),
    "scale": np.ones(4, np.float32),
    "table": np.ones((9, 4), np.float32),
}


def found(folder, nodes, shape=("n", 4), dtype="FLOAT"):
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", getattr(onnx.TensorProto, dtype), shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), folder / "model.onnx")
    return follow(read((folder / "model.onnx").read_bytes(), {"y": "y"}), {"x": 0})["y"]


PROVED = {
    "a product of matrices": ([node("MatMul", ["x", "w"], ["y"])], 0),
    "another axis": ([node("Transpose", ["x"], ["y"])], 1),
    "a shape that an exporter makes": (
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"]),
            node("Concat", ["n", "last", "one"], ["t"], axis=0),
            node("Reshape", ["x", "t"], ["y"]),
        ],
        0,
    ),
    "attention": (
        [
            node("Unsqueeze", ["x", "one"], ["q"]),
            node("Unsqueeze", ["x", "last"], ["k"]),
            node("MatMul", ["k", "q"], ["s"]),
            node("Softmax", ["s"], ["p"]),
            node("ReduceSum", ["p", "one"], ["y"], keepdims=0),
        ],
        0,
    ),
    "a mean that no output has": (
        [node("ReduceMean", ["x"], ["m"], axes=[0]), node("Sub", ["x", "m"], ["d"]), node("Relu", ["x"], ["y"])],
        0,
    ),
    "a batch that is on an axis with another one, and comes back": (
        [node("Reshape", ["x", "last"], ["f"]), node("Reshape", ["f", "t"], ["y"])],
        0,
    ),
}
MIXED = {
    "a mean": ([node("ReduceMean", ["x"], ["m"], axes=[0]), node("Sub", ["x", "m"], ["y"])], "ReduceMean 'm'"),
    "a softmax": ([node("Softmax", ["x"], ["y"], name="/head/Softmax", axis=0)], "Softmax '/head/Softmax'"),
    "a sum of all before": ([node("CumSum", ["x", "nil"], ["y"])], "CumSum 'y'"),
    "similar records": (
        [node("Transpose", ["x"], ["t"]), node("MatMul", ["x", "t"], ["s"]), node("MatMul", ["s", "x"], ["y"])],
        "MatMul 's'",
    ),
    "a scale of the call": (
        [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])],
        "DynamicQuantizeLinear 'q'",
    ),
    "a normalization as in training": (
        [node("BatchNormalization", ["x", *["scale"] * 4], ["y", "m", "v"], training_mode=1)],
        "BatchNormalization 'y'",
    ),
    "the first record": (
        [node("Slice", ["x", "zero", "one", "zero"], ["f"]), node("Add", ["x", "f"], ["y"])],
        "Slice 'f'",
    ),
}
COUNT = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "nil"], ["n"])]
KEYS = [node("ReduceSum", ["x", "one"], ["k"], keepdims=0)]
PERHAPS = {
    "the number of records": [*COUNT, node("Cast", ["n"], ["f"], to=1), node("Mul", ["x", "f"], ["y"])],
    "the place in the call": [
        *COUNT,
        node("Range", ["nil", "n", "unit"], ["p"]),
        node("Cast", ["p"], ["f"], to=1),
        node("Unsqueeze", ["f", "one"], ["u"]),
        node("Add", ["x", "u"], ["y"]),
    ],
    "places by a number modulo that of the records": [
        *COUNT,
        *KEYS,
        node("Cast", ["k"], ["i"], to=7),
        node("Mod", ["i", "n"], ["p"]),
        node("Gather", ["x", "p"], ["y"]),
    ],
    "places in the order of records": [
        *KEYS,
        node("TopK", ["k", "one"], ["v", "o"], axis=0),
        node("Cast", ["o"], ["f"], to=1),
        node("Unsqueeze", ["f", "one"], ["u"]),
        node("Add", ["x", "u"], ["y"]),
    ],
    "sums over the records of a kind": [
        *KEYS,
        node("Cast", ["k"], ["i"], to=7),
        node("ScatterElements", ["scale", "i", "k"], ["t"], reduction="add"),
        node("Gather", ["t", "i"], ["y"]),
    ],
    "kinds of records": [
        *KEYS,
        node("Unique", ["k"], ["u", "i", "r", "c"]),
        node("Gather", ["c", "r"], ["g"]),
        node("Cast", ["g"], ["y"], to=1),
    ],
    "records as steps of a signal": [
        node("Transpose", ["x"], ["t"]),
        node("Unsqueeze", ["t", "zero"], ["u"]),
        node("Resize", ["u", "", "half"], ["r"], mode="linear"),
        node("Squeeze", ["r", "zero"], ["y"]),
    ],
    "records as columns": [node("Transpose", ["x"], ["t"]), node("Reshape", ["t", "t4"], ["y"])],
    "halves in another order": [
        node("Split", ["x"], ["a", "b"], axis=0),
        node("Concat", ["b", "a"], ["y"], axis=0),
    ],
    "each record beside each": [node("Einsum", ["x", "x"], ["y"], equation="bi,ci->bc")],
    "a mean, times nothing": [
        node("ReduceMean", ["x"], ["m"], axes=[0]),
        node("Mul", ["m", "nothing"], ["z"]),
        node("Add", ["x", "z"], ["y"]),
    ],
    "a mean, if a sum of columns is in a band": [
        node("ReduceSum", ["x", "one"], ["s"]),
        node("Greater", ["s", "least"], ["above"]),
        node("Less", ["s", "most"], ["below"]),
        node("And", ["above", "below"], ["within"]),
        node("Cast", ["within"], ["found"], to=1),
        node("ReduceMax", ["found"], ["any"], axes=[0]),
        node("Greater", ["any", "nothing"], ["g"]),
        node("Where", ["g", "scale", "x"], ["y"]),
    ],
    "the part beside what is mixed": [
        node("ReduceMean", ["x"], ["m"], axes=[0]),
        node("Sub", ["x", "m"], ["d"]),
        node("Concat", ["x", "d"], ["c"], axis=1),
        node("Slice", ["c", "zero", "four", "one"], ["y"]),
    ],
    "records that are put together again": [
        node("Slice", ["x", "zero", "one", "zero"], ["f"]),
        node("Slice", ["x", "one", "end", "zero"], ["r"]),
        node("Concat", ["f", "r"], ["y"], axis=0),
    ],
}
UNKNOWN = {
    "records in an order, and back": [
        *KEYS,
        node("TopK", ["k", "one"], ["v", "o"], axis=0),
        node("TopK", ["o", "one"], ["w", "r"], axis=0),
        node("Gather", ["x", "o"], ["q"]),
        node("Gather", ["q", "r"], ["y"]),
    ],
    "elements that are counted through all records": [
        *COUNT,
        *KEYS,
        node("Cast", ["k"], ["i"], to=7),
        node("Range", ["nil", "n", "unit"], ["p"]),
        node("Mul", ["p", "four"], ["q"]),
        node("Add", ["i", "q"], ["j"]),
        node("Reshape", ["x", "last"], ["f"]),
        node("Gather", ["f", "j"], ["y"]),
    ],
    "places of the largest elements in memory": [
        node("Unsqueeze", ["x", "one"], ["u"]),
        node("MaxPool", ["u"], ["v", "i"], kernel_shape=[2]),
        node("Cast", ["i"], ["y"], to=1),
    ],
    "a triangle of the batch": [node("Trilu", ["x"], ["y"])],
    "attributes that no operator has": [
        node("Softmax", ["x"], ["s"], axis=9),
        node("Split", ["s"], ["y", "z"], axis=7),
    ],
    "steps of nothing": [node("Conv", ["x", "w"], ["y"], strides=[0])],
    "random numbers": [node("RandomUniformLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])],
    "an operator of somebody": [node("Relu", ["x"], ["y"], domain="my.domain")],
    "a tensor of nowhere": [node("Relu", ["nowhere"], ["y"])],
    "a batch that loses its axis": [node("Unsqueeze", ["x", "one"], ["u"]), node("Squeeze", ["u"], ["y"])],
}
WEIGHTS |= {"unit": np.array(1), "half": np.array([1, 1, 0.5], np.float32), "t4": np.array([-1, 4])}
WEIGHTS |= {"nil": np.array(0), "t": np.array([-1, 4]), "far": np.array(1e38, np.float32)}
WEIGHTS |= {"least": np.array(1.73, np.float32), "most": np.array(1.74, np.float32)}


@pytest.mark.parametrize("name", PROVED)
def test_rows_that_are_apart_are_proven(tmp_path, name):
    nodes, axis = PROVED[name]
    assert found(tmp_path, nodes) == Finding(axis)


@pytest.mark.parametrize("name", MIXED)
def test_the_operator_that_mixes_rows_is_found(tmp_path, name):
    nodes, operator = MIXED[name]
    assert found(tmp_path, nodes) == Finding(mixed_by=operator)


@pytest.mark.parametrize("name", PERHAPS)
def test_an_operator_whose_mixing_may_have_an_effect_is_found(tmp_path, name):
    finding = found(tmp_path, PERHAPS[name])
    assert (finding.axis, finding.mixed_by) == (None, "") and finding.may_mix


def test_what_may_depend_on_others_has_a_call_of_its_own(tmp_path):
    found(tmp_path, PERHAPS["a mean, if a sum of columns is in a band"])
    assert load_model(ModelOptions(str(tmp_path))).one_by_one == (
        "output 'y' of a record may depend on the others in its batch (ReduceMax 'any' mixes them)"
    )


@pytest.mark.parametrize("name", UNKNOWN)
def test_of_all_else_nothing_is_known(tmp_path, name):
    assert found(tmp_path, UNKNOWN[name]) == Finding()


def test_rows_of_a_table(tmp_path):
    nodes = [node("Gather", ["table", "x"], ["e"]), node("ReduceMean", ["e"], ["y"], axes=[1])]
    assert found(tmp_path, nodes, ("n", "length"), "INT64") == Finding(0)


@pytest.mark.parametrize("name", onnx_cases())
def test_no_model_is_found_to_be_what_it_is_not(tmp_path, name):
    case = onnx_cases()[name]
    case.save(tmp_path)
    graph = read((tmp_path / "model.onnx").read_bytes(), {name: name for name in case.outputs})
    findings = follow(graph, {name: axis for name, (axis, _, _) in case.inputs.items()})
    for output, finding in findings.items():
        assert finding.axis in (None, case.outputs[output])
        assert not ((finding.mixed_by or finding.may_mix) and case.shares)


def test_a_refused_model_names_the_operator(tmp_path):
    found(tmp_path, MIXED["a mean"][0])
    assert load_model(ModelOptions(str(tmp_path))).one_by_one == (
        "output 'y' of a record depends on the others in its batch (ReduceMean 'm' mixes them)"
    )


def test_what_the_graph_proves_is_not_tried_with_other_values(tmp_path, monkeypatch):
    tried = []
    moved = influence.Influence._moved
    monkeypatch.setenv("CLUSTER_SERVING_CACHE", "/proc/none")
    monkeypatch.setattr(influence.Influence, "_moved", lambda *rest: tried.append(1) or moved(*rest))
    found(tmp_path, PROVED["attention"][0])
    assert load_model(ModelOptions(str(tmp_path))).one_by_one == ""
    assert not tried
    found(tmp_path, UNKNOWN["a batch that loses its axis"])
    assert load_model(ModelOptions(str(tmp_path))).one_by_one == ""
    assert tried


def test_what_is_the_same_for_all_trials_is_proven_by_the_graph(tmp_path):
    nodes = [node("Greater", ["x", "far"], ["g"]), node("Cast", ["g"], ["y"], to=1)]
    found(tmp_path, nodes)
    model = load_model(ModelOptions(str(tmp_path)))
    assert model.one_by_one == ""
    x = np.array([[1, 2, 3, 2e38], [3e38, 0, 0, 0]], np.float32)
    np.testing.assert_array_equal(model.predict([x])[0], x > 1e38)


def test_numbers_that_others_are_compared_with_are_known(tmp_path):
    seven = onnx.numpy_helper.from_array(np.array(7.5, np.float32))
    nodes = [
        node("Constant", [], ["k"], value=seven),
        node("Less", ["x", "k"], ["a"]),
        node("GreaterOrEqual", ["x", "scale"], ["b"]),
        node("Add", ["x", "nothing"], ["y"]),
    ]
    found(tmp_path, nodes)
    bounds = read((tmp_path / "model.onnx").read_bytes(), {"y": "y"}).bounds(9)
    assert [array.tolist() for array in bounds] == [7.5, [1, 1, 1, 1]]
