from __future__ import annotations

import json

import numpy as np
import pytest

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from tests.support.lazy import Lazy
from tests.support.payloads import model_zoo

tf = Lazy("tensorflow")

A, B = np.full((3, 2), 5, np.float32), np.full((3, 2), 2, np.float32)


def load(folder, **options):
    return load_model(ModelOptions(str(folder), **options))


def save(folder, meta, name="frozen_inference_graph.pb"):
    """b - a, and the sum of both with the two parts of what it is split into."""
    with model_zoo.graph_session() as session:
        a, b = (tf.compat.v1.placeholder(tf.float32, [None, 2], name) for name in "ab")
        tf.subtract(b, a, name="difference")
        tf.split(a + b, 2, 1, name="halves")
        model_zoo.save_frozen_graph(folder, session.graph, meta, name)


@pytest.mark.parametrize("name", ["frozen_inference_graph.pb", "frozen_graph.pb", "mine.pb"])
@pytest.mark.parametrize(
    "meta",
    [
        {"input_names": ["b:0", "a:0"], "output_names": ["difference:0", "halves:1"]},
        {"inputNames": ["b", "a"], "outputNames": ["difference", "halves:1"], "temp_tensors": [], "variables": []},
    ],
)
def test_names_come_from_the_json_in_its_order_and_either_spelling(tmp_path, meta, name):
    save(tmp_path, meta, name)
    model = load(tmp_path)
    assert list(map(str, model.inputs)) == ["b: float32[?, 2]", "a: float32[?, 2]"]
    assert [spec.name for spec in model.outputs] == ["difference", "halves:1"]
    difference, half = model.predict([B, A])
    np.testing.assert_array_equal(difference, B - A)
    np.testing.assert_array_equal(half, np.full((3, 1), 7))


def test_without_names_the_only_end_of_the_graph_is_the_output(tmp_path):
    with model_zoo.graph_session() as session:
        a, b = (tf.compat.v1.placeholder(tf.float32, [None, 2], name) for name in "ab")
        tf.subtract(b, a, name="difference")
        model_zoo.save_frozen_graph(tmp_path, session.graph, {}, "frozen_graph.pb")
    (tmp_path / "graph_meta.json").unlink()
    model = load(tmp_path)
    assert list(map(str, model.inputs)) == ["a: float32[?, 2]", "b: float32[?, 2]"]
    np.testing.assert_array_equal(model.predict([A, B])[0], B - A)


def test_without_names_several_ends_are_refused_until_one_is_named(tmp_path):
    save(tmp_path, {})
    (tmp_path / "graph_meta.json").unlink()
    with pytest.raises(ModelError, match=r"does not say what its output is: name it in `outputs`.*difference:0"):
        load(tmp_path)
    model = load(tmp_path, outputs=("difference",))
    np.testing.assert_array_equal(model.predict([A, B])[0], B - A)


def test_the_options_may_name_others(tmp_path):
    save(tmp_path, {"input_names": ["a", "b"], "output_names": ["difference"]})
    model = load(tmp_path, inputs=("b:0", "a"), outputs=("halves:0", "difference"))
    assert [spec.name for spec in model.outputs] == ["halves:0", "difference"]
    np.testing.assert_array_equal(model.predict([B, A])[1], B - A)


def test_a_fixed_batch_is_cut_and_padded_to(tmp_path):
    with model_zoo.graph_session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [2, 3], "x")
        tf.multiply(x, 2.0, name="y")
        model_zoo.save_frozen_graph(tmp_path, session.graph, {"input_names": ["x"], "output_names": ["y"]})
    model = load(tmp_path)
    for batch in (1, 2, 5):
        x = np.arange(3 * batch, dtype=np.float32).reshape(batch, 3)
        np.testing.assert_array_equal(model.predict([x])[0], 2 * x)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", r"graph_meta\.json cannot be read: .*; it should be like \{"),
        ("[]", "does not list the inputs as 'input_names'"),
        ('{"input_names": "a"}', "does not list the inputs as 'input_names'"),
        ('{"input_names": ["a", "b"]}', "does not list the outputs as 'output_names'"),
        ('{"input_names": ["x"], "output_names": ["difference"]}', "'x:0', which .* lacks; its placeholders are a, b"),
        ('{"input_names": ["a:1"], "output_names": ["difference"]}', "names the tensor 'a:1'"),
    ],
)
def test_a_json_that_does_not_name_the_ends_is_refused(tmp_path, text, problem):
    save(tmp_path, {})
    (tmp_path / "graph_meta.json").write_text(text)
    with pytest.raises(ModelError, match=problem):
        load(tmp_path)


def test_a_graph_with_variables_is_refused(tmp_path):
    with model_zoo.graph_session() as session:
        tf.compat.v1.get_variable("w", [2, 2])
        tf.compat.v1.get_variable("v", [2, 2])
        model_zoo.save_frozen_graph(tmp_path, session.graph, {})
    with pytest.raises(ModelError, match="is not frozen: it has variables .'w' and 1 more. without values"):
        load(tmp_path)


def test_other_keys_of_the_json_do_not_matter(tmp_path):
    save(tmp_path, {})
    meta = {"input_names": ["a", "b"], "output_names": ["difference"], "grad_inputs": None}
    (tmp_path / "graph_meta.json").write_text(json.dumps(meta))
    assert load(tmp_path).warm_up(2)
