from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper

from cluster_serving.job.models import load_model
from cluster_serving.job.models.graph.onnx.known import known
from cluster_serving.job.options import ModelOptions
from cluster_serving.job.predictor import Predictor
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ModelError
from tests.support.payloads import model_zoo

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
    with pytest.raises(ModelError, match=r"ONNX Runtime .* cannot load .*model\.onnx: .*model\.onnx\.data"):
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


def encoder(source, name, **categories):
    """A one-hot encoder as skl2onnx writes it, which refuses other values."""
    return helper.make_node("OneHotEncoder", [source], [name], domain="ai.onnx.ml", zeros=0, **categories)


def save_encoders(folder):
    """`city`, and column 2 of `x`, become five numbers."""
    nodes = [
        helper.make_node("Gather", ["x", "chosen"], ["plan"], axis=1),
        helper.make_node("Cast", ["plan"], ["codes"], to=onnx.TensorProto.INT64),
        encoder("codes", "plans", cats_int64s=[1, 2, 5]),
        encoder("city", "cities", cats_strings=["Köln", "Oslo"]),
        helper.make_node("Concat", ["plans", "cities"], ["all"], axis=2),
        helper.make_node("Flatten", ["all"], ["y"]),
    ]
    inputs = {"x": ("FLOAT", ["n", 4]), "city": ("STRING", ["n", 1])}
    model_zoo.save_onnx(folder, nodes, inputs, {"y": ("FLOAT", ["n", 5])}, {"chosen": np.array([2])})


def test_a_value_that_is_no_category_fails_alone_and_names_its_input(tmp_path):
    save_encoders(tmp_path)
    asked = [([9, 9, 5, 9], "Oslo"), ([9, 9, 5, 9], "Rome"), ([9, 9, 7, 9], "Oslo"), ([0, 0, 1, 0], "Köln")]
    with Predictor(ModelOptions(str(tmp_path))) as predictor:
        # Zeros are no categories; others were computed at start.
        assert not predictor.report().untried
        found = predictor.predict(
            [{"x": np.array(x, np.float32), "city": np.array([city], object)} for x, city in asked]
        )
    assert found[0]["y"].tolist() == [0, 0, 1, 0, 1]
    assert found[3]["y"].tolist() == [1, 0, 0, 1, 0]
    assert [type(error) for error in found[1:3]] == [InvalidInput, InvalidInput]
    assert str(found[1]) == "input 'city' is 'Rome', which is not one of its categories: 'Köln', 'Oslo'"
    assert str(found[2]) == "value 2 of input 'x' is 7.0, which is not one of its categories: 1, 2, 5"


def test_an_index_beyond_a_table_fails_alone_and_names_its_input(tmp_path):
    node = helper.make_node("Gather", ["table", "x"], ["y"])
    table = {"table": np.arange(5, dtype=np.float32)}
    model_zoo.save_onnx(tmp_path, [node], {"x": ("INT64", ["n", 2])}, {"y": ("FLOAT", ["n", 2])}, table)
    with Predictor(ModelOptions(str(tmp_path))) as predictor:
        good, bad = predictor.predict([{"x": np.array([0, 4])}, {"x": np.array([1, 7])}])
    assert good["y"].tolist() == [0, 4]
    assert isinstance(bad, InvalidInput)
    assert str(bad) == "input 'x' has 7, and the model takes whole numbers from -5 to 4 there"


@pytest.mark.parametrize("names", [("lookup", "change"), ("", "")])
def test_an_index_that_the_model_computes_is_not_blamed_on_an_input_that_has_the_number_too(tmp_path, names):
    nodes = [
        helper.make_node("Unsqueeze", ["y", "axes"], ["wide"]),
        helper.make_node("Cast", ["wide"], ["whole"], to=onnx.TensorProto.INT64),
        helper.make_node("Squeeze", ["whole", "axes"], ["same"]),
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("Gather", ["table", "twice"], ["of_x"], name=names[0]),
        helper.make_node("ScatterElements", ["table", "same", "z"], ["of_y"], name=names[1]),
    ]
    constants = {"table": np.arange(5, dtype=np.float32), "axes": np.array([0])}
    ports = {"x": ("INT64", [1]), "y": ("INT32", [1]), "z": ("FLOAT", [1])}
    model_zoo.save_onnx(tmp_path, nodes, ports, {"of_x": ("FLOAT", [1]), "of_y": ("FLOAT", [5])}, constants)
    model = load(tmp_path)
    eight = np.array([8], np.float32)
    with pytest.raises(InferenceFailed, match="idx=8 must be within"):
        model.predict([np.array([4]), np.array([0], np.int32), eight])
    with pytest.raises(InvalidInput, match="^input 'y' has 8, and the model takes whole numbers from -5 to 4 there$"):
        model.predict([np.array([2]), eight.astype(np.int32), eight])


def test_a_computed_value_that_is_no_category_names_what_it_comes_from(tmp_path):
    nodes = [helper.make_node("Add", ["x", "x"], ["twice"]), encoder("twice", "y", cats_int64s=[0, 2])]
    model_zoo.save_onnx(tmp_path, nodes, {"x": ("FLOAT", ["n", 1])}, {"y": ("FLOAT", ["n", 1, 2])})
    model = load(tmp_path)
    assert model.predict([np.array([[1]], np.float32)])[0].tolist() == [[[0, 1]]]
    with pytest.raises(InvalidInput, match="^a value of input 'x' is not one of the categories: 0, 2$"):
        model.predict([np.array([[4]], np.float32)])


@pytest.mark.parametrize(("kind", "labels"), [("int64s", [3, 5]), ("strings", ["cat", "dog"])])
def test_the_maps_of_a_classifier_become_an_array_and_its_labels(tmp_path, kind, labels):
    # As skl2onnx converts a classifier.
    keys = {f"classlabels_{kind}": labels}
    nodes = [
        helper.make_node("ArgMax", ["x"], ["output_label"], axis=1, keepdims=0),
        helper.make_node("ZipMap", ["x"], ["output_probability"], domain="ai.onnx.ml", **keys),
    ]
    key = onnx.TensorProto.INT64 if kind == "int64s" else onnx.TensorProto.STRING
    number = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, number))
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2])],
        [
            helper.make_tensor_value_info("output_label", onnx.TensorProto.INT64, ["n"]),
            helper.make_value_info("output_probability", maps),
        ],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save_model(helper.make_model(graph, opset_imports=imports, ir_version=9), str(tmp_path / "model.onnx"))
    probabilities = np.array([[0.25, 0.75], [1, 0], [0.5, 0.5]], np.float32)
    model = load(tmp_path)
    assert list(map(str, model.outputs)) == [
        "output_label: int64[?]",
        "output_probability: float32[?, ?]",
        f"output_probability_labels: {'str' if kind == 'strings' else 'int64'}[?, ?]",
    ]
    label, values, names = model.predict([probabilities])
    assert label.tolist() == [1, 0, 0]
    np.testing.assert_array_equal(values, probabilities)
    assert names.tolist() == [labels] * 3
    (only,) = load(tmp_path, outputs=("output_probability_labels",)).predict([probabilities[:1]])
    assert only.tolist() == [labels]


@pytest.mark.parametrize(
    ("shapes", "problem"),
    [
        (((3,),), r"inputShapes has \[3\] for the input x: float32\[\?, 64\], whose first dimension is the batch"),
        (((64, 1),), r"inputShapes has \[64, 1\] for the input x"),
        (((64,), (2,)), r"inputShapes has 2 shapes, and the model expects x: float32\[\?, 64\]"),
    ],
)
def test_shapes_that_are_not_those_of_the_model_are_refused(tmp_path, shapes, problem):
    model_zoo.save_onnx_digits(tmp_path)
    load(tmp_path, input_shapes=((64,),))
    load(tmp_path, input_shapes=((-1,),))
    with pytest.raises(ModelError, match=problem):
        load(tmp_path, input_shapes=shapes)


X = {"x": ("FLOAT", ["n", 4])}
Y = {"y": ("FLOAT", ["n", 4])}
RELU = helper.make_node("Relu", ["x"], ["y"])


def test_an_input_with_a_default_is_fed_only_if_it_is_named(tmp_path):
    nodes = [helper.make_node("Mul", ["x", "factor"], ["y"])]
    inputs = X | {"factor": ("FLOAT", [1])}
    model_zoo.save_onnx(tmp_path, nodes, inputs, Y, {"factor": np.array([2], np.float32)})
    x = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(load(tmp_path).predict([x])[0], 2 * x)
    model = load(tmp_path, inputs=("x", "factor"))
    factors = np.array([[1], [5], [7]], np.float32)
    np.testing.assert_array_equal(model.predict([x, factors])[0], x * factors)


def test_a_sequence_is_refused_with_the_outputs_that_can_be_served(tmp_path):
    nodes = [RELU, helper.make_node("SplitToSequence", ["x"], ["parts"], axis=0)]
    model_zoo.save_onnx(tmp_path, nodes, X, Y)
    model = onnx.load(tmp_path / "model.onnx")
    model.graph.output.append(helper.make_tensor_sequence_value_info("parts", onnx.TensorProto.FLOAT, None))
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=r"'parts' is of type seq\(tensor\(float\)\), .*; outputs: \[y\] in config"):
        load(tmp_path)
    assert [spec.name for spec in load(tmp_path, outputs=("y",)).outputs] == ["y"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ir_version": 99}, r"is of ONNX IR version 99, and ONNX Runtime \S+ takes at most \d+: run pip install"),
        ({"opset": 99}, r"is of ONNX opset 99 of ai.onnx, and ONNX Runtime \S+ takes at most \d+: run pip install"),
        ({"domain": "my.domain"}, r"uses the operator my.domain:Relu, which ONNX Runtime lacks: serve it by a handler"),
        ({"domain": "ai.onnx.contrib"}, r"lacks: run pip install onnxruntime-extensions where the TaskManagers run"),
    ],
)
def test_what_onnx_runtime_cannot_compute_is_told_with_the_remedy(tmp_path, change, message):
    model_zoo.save_onnx(tmp_path, [RELU], X, Y)
    model = onnx.load(tmp_path / "model.onnx")
    model.ir_version = change.get("ir_version", model.ir_version)
    model.opset_import[0].version = change.get("opset", 17)
    if "domain" in change:
        model.graph.node[0].domain = change["domain"]
        model.opset_import.append(helper.make_opsetid(change["domain"], 1))
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=message) as error:
        load(tmp_path)
    assert ".cc:" not in str(error.value)


def test_a_file_that_is_cut_off_is_said_to_be(tmp_path):
    model_zoo.save_onnx_digits(tmp_path)
    path = tmp_path / "model.onnx"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="is not an ONNX model, or it is cut off: copy it again"):
        load(tmp_path)


@pytest.mark.parametrize("training", [True, False])
def test_a_normalization_that_computes_as_in_training_is_named(tmp_path, training):
    names = ["scale", "shift", "mean", "variance"]
    weights = {name: np.ones(4, np.float32) for name in names}
    node = helper.make_node(
        "BatchNormalization", ["x", *names], ["y"] + ["m", "v"] * training, name="bn", training_mode=int(training)
    )
    model_zoo.save_onnx(tmp_path, [node], {"x": ("FLOAT", ["n", 4])}, {"y": ("FLOAT", ["n", 4])}, weights)
    assert ("layer 'bn' computes as in training" in load(tmp_path).one_by_one) == training


def test_a_model_with_a_loop_is_tried_with_care(tmp_path):
    def saved(nodes):
        model_zoo.save_onnx(tmp_path, nodes, {"x": ("FLOAT", ["n", 4])}, {"y": ("FLOAT", ["n", 4])}, WEIGHTS)
        return load(tmp_path)

    condition = helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, [])
    number = helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [])
    value, result = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("v", "w"))
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "body",
        [number, condition, value],
        [helper.make_tensor_value_info("on", onnx.TensorProto.BOOL, []), result],
    )
    looping = saved([helper.make_node("Loop", ["times", "true", "x"], ["y"], body=body)])
    assert looping._model.careful and looping.one_by_one == ""
    np.testing.assert_array_equal(looping.predict([np.ones((3, 4), np.float32)])[0], np.full((3, 4), 8))
    assert not saved([helper.make_node("Add", ["x", "x"], ["y"], name="Loop")])._model.careful


WEIGHTS = {"times": np.array(3), "true": np.array(True)}


def test_a_locale_that_is_missing_is_named_with_the_command_that_adds_it(tmp_path):
    # ONNX Runtime looks for exactly this name, and for en_US.UTF-8 without one.
    for name in ("xx_XX", "xx_XX.UTF-8"):
        node = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER", locale=name)
        model_zoo.save_onnx(tmp_path, [node], {"x": ("STRING", [1])}, {"y": ("STRING", [1])}, {})
        with pytest.raises(ModelError, match=f"needs the locale {name}, .* localedef -i xx_XX -f UTF-8 {name} there"):
            load(tmp_path)


@pytest.mark.parametrize("within", [False, True])
def test_the_texts_and_keys_that_a_model_knows_are_tried(tmp_path, within):
    keys = helper.make_node(
        "LabelEncoder", ["n"], ["a"], domain="ai.onnx.ml", keys_int64s=[100234, 42], values_int64s=[1, 2]
    )
    matched = helper.make_node("RegexFullMatch", ["t"], ["b"], pattern="ERR-[0-9]+")
    equal = helper.make_node("Equal", ["t", "word"], ["c"])
    words = helper.make_tensor("word", onnx.TensorProto.STRING, [1], [b"total"])
    nodes = [keys, matched, equal]
    graph = helper.make_graph(nodes, "g", [], [], [words])
    if within:
        graph = helper.make_graph(
            [helper.make_node("If", ["t"], ["y"], then_branch=graph, else_branch=graph)], "g", [], []
        )
    content = helper.make_model(graph).SerializeToString()
    assert {*known(content, True)} == {100234, 42, "ERR-0", "ERR-000", "total"}
    assert known(content, False) == [100234, 42]


def test_rows_that_a_word_of_others_changes_do_not_share_calls(tmp_path):
    node = helper.make_node
    nodes = [
        node("LabelEncoder", ["t"], ["l"], domain="ai.onnx.ml", keys_strings=["ok", "warn"], values_int64s=[1, 2]),
        node("ReduceMax", ["l"], ["most"], keepdims=0),
        node("Equal", ["most", "two"], ["is"]),
        node("Cast", ["is"], ["one"], to=onnx.TensorProto.INT64),
        node("Add", ["l", "one"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("t", onnx.TensorProto.STRING, ["batch"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, ["batch"])],
        [helper.make_tensor("two", onnx.TensorProto.INT64, [], [2])],
    )
    versions = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=versions, ir_version=9), tmp_path / "model.onnx")
    model = load(tmp_path)
    assert model.one_by_one == (
        "output 'y' of a record may depend on the others in its batch (ReduceMax 'most' mixes them)"
    )
    (answers,) = model.predict([np.array(["ok", "warn", "ok"], object)])
    assert answers.tolist() == [1, 3, 1]


@pytest.mark.parametrize("first", ["", "import onnxruntime\n"], ids=["a model", "a handler that imports it"])
def test_the_engine_keeps_no_identifier_of_its_user_and_reports_nothing(tmp_path, first):
    folder, home = tmp_path / "model", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    save_two(folder)
    if first:
        (folder / "handler.py").write_text(
            f"{first}class Handler:\n    def predict(self, batch):\n        return batch\n"
        )
    code = (
        "import sys; from cluster_serving.job.models import load_model; from cluster_serving.job.options import "
        "ModelOptions\nload_model(ModelOptions(sys.argv[1])); assert 'onnxruntime' in sys.modules"
    )
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    }
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, env=inherited | {"HOME": str(home)})
    assert not [path for path in home.rglob("*") if path.is_file()]
