from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from cluster_serving.job.models import TensorSpec, load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import InferenceFailed, ModelError
from tests.support.lazy import Lazy
from tests.support.payloads import model_zoo

tf = Lazy("tensorflow")


def load(folder, **options):
    return load_model(ModelOptions(str(folder), **options))


def test_inputs_and_outputs_are_in_alphabetical_order(tmp_path):
    model_zoo.save_savedmodel(
        tmp_path,
        lambda b, a: {"product": a * b, "difference": b - a},
        tf.TensorSpec([None, 2], tf.float32, "b"),
        tf.TensorSpec([None, 2], tf.float32, "a"),
    )
    model = load(tmp_path)
    assert list(map(str, model.inputs)) == ["a: float32[?, 2]", "b: float32[?, 2]"]
    assert [spec.name for spec in model.outputs] == ["difference", "product"]
    a, b = np.full((3, 2), 2, np.float32), np.full((3, 2), 5, np.float32)
    difference, product = model.predict([a, b])
    np.testing.assert_array_equal(difference, b - a)
    np.testing.assert_array_equal(product, a * b)

    model = load(tmp_path, inputs=("b", "a"), outputs=("product",))
    np.testing.assert_array_equal(model.predict([b, a])[0], product)


def test_inputs_and_outputs_may_be_named_as_tensors_of_the_graph(tmp_path):
    graph = tf.Graph()
    with graph.as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 2], "x")
        tf.add(x, 1.0, name="inner")
        y = tf.multiply(x, 2.0, name="y")
        builder = tf.compat.v1.saved_model.Builder(str(tmp_path / "model"))
        signature = tf.compat.v1.saved_model.predict_signature_def({"input": x}, {"output": y})
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    (tmp_path / "model" / "variables").mkdir(exist_ok=True)  # not written, as there are none
    model = load(tmp_path / "model", inputs=("x:0",), outputs=("inner:0", "output"))
    assert list(map(str, model.inputs)) == ["x:0: float32[?, 2]"]
    inner, y = model.predict([np.ones((2, 2), np.float32)])
    np.testing.assert_array_equal(inner, np.full((2, 2), 2))
    np.testing.assert_array_equal(y, np.full((2, 2), 2))
    with pytest.raises(ModelError, match="no output 'none:0'; its outputs are output"):
        load(tmp_path / "model", outputs=("none:0",))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "float64"])
def test_dtypes_pass_through(tmp_path, dtype):
    model_zoo.save_savedmodel(
        tmp_path, lambda x: {"y": tf.concat([x, x], 1)}, tf.TensorSpec([None, 2], tf.as_dtype(dtype), "x")
    )
    model = load(tmp_path)
    assert model.inputs == [TensorSpec("x", dtype, (None, 2))]
    values = np.array([[0, 1], [1, 1]], dtype)
    (answer,) = model.predict([values])
    assert answer.dtype == dtype
    np.testing.assert_array_equal(answer, np.concatenate([values, values], 1))


def test_strings_go_in_and_come_out(tmp_path):
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["one", "zwölf"], [1, 12]), 0)
    model_zoo.save_savedmodel(
        tmp_path,
        lambda words: {"number": table.lookup(words), "upper": tf.strings.upper(words, "utf-8")},
        tf.TensorSpec([None, 2], tf.string, "words"),
        track=table,
    )
    model = load(tmp_path)
    assert model.inputs == [TensorSpec("words", "str", (None, 2))]
    number, upper = model.predict([np.array([["one", "zwölf"], ["", "three"]], object)])
    assert number.tolist() == [[1, 12], [0, 0]]
    assert upper.dtype == object
    assert upper.tolist() == [["ONE", "ZWÖLF"], ["", "THREE"]]
    assert model.warm_up(2) is not None


def test_bfloat16_comes_and_leaves_as_float32(tmp_path):
    model_zoo.save_savedmodel(tmp_path, lambda x: {"y": x / 2}, tf.TensorSpec([None, 2], tf.bfloat16, "x"))
    model = load(tmp_path)
    assert [spec.dtype for spec in (*model.inputs, *model.outputs)] == ["float32", "float32"]
    (y,) = model.predict([np.ones((1, 2), np.float32)])
    assert (y.dtype, y.tolist()) == (np.float32, [[0.5, 0.5]])


def test_control_flow_runs_in_the_calling_thread(tmp_path):
    def power(x):
        result = x
        for _ in tf.range(3):
            result = result * x
        return {"y": tf.map_fn(lambda row: tf.cond(tf.reduce_sum(row) > 0, lambda: row, lambda: -row), result)}

    model_zoo.save_savedmodel(tmp_path, power, tf.TensorSpec([None, 2], tf.float32, "x"))
    x = np.array([[1, 2], [3, -4]], np.float32)
    np.testing.assert_allclose(load(tmp_path).predict([x])[0], x**4)


def test_an_error_inside_the_graph_is_reported(tmp_path):
    def checked(x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, message="x has to be positive")]):
            return {"y": tf.identity(x)}

    model_zoo.save_savedmodel(tmp_path, checked, tf.TensorSpec([None, 2], tf.float32, "x"))
    model = load(tmp_path)
    with pytest.raises(InferenceFailed, match="x has to be positive"):
        model.predict([np.array([[1, -1]], np.float32)])
    assert model.predict([np.ones((1, 2), np.float32)])[0].tolist() == [[1, 1]]


def save_signatures(folder, *names):
    module = tf.Module()
    for name in names:
        spec = tf.TensorSpec([None, 2], tf.float32, "x")
        setattr(module, name, tf.function(lambda x: {"y": x * 2}, input_signature=[spec]))
    tf.saved_model.save(module, str(folder), signatures={name: getattr(module, name) for name in names})


def test_the_only_signature_is_served_whatever_its_name(tmp_path):
    save_signatures(tmp_path, "score")
    model = load(tmp_path)
    assert [str(spec) for spec in (*model.inputs, *model.outputs)] == ["x: float32[?, 2]", "y: float32[?, 2]"]
    np.testing.assert_array_equal(model.predict([np.ones((3, 2), np.float32)])[0], np.full((3, 2), 2))


def test_of_several_signatures_the_tensors_are_listed_as_the_configuration_takes_them(tmp_path):
    save_signatures(tmp_path, "score", "rank")
    with pytest.raises(
        ModelError, match=r"no signature 'serving_default'; name .*of rank inputs: \[(\S+)\] and"
    ) as error:
        load(tmp_path)
    tensors = re.search(r"of score inputs: \[(\S+)\] and outputs: \[(\S+)\]", str(error.value))
    model = load(tmp_path, inputs=(tensors[1],), outputs=(tensors[2],))
    np.testing.assert_array_equal(model.predict([np.ones((3, 2), np.float32)])[0], np.full((3, 2), 2))


def test_a_model_without_its_variables_is_refused(tmp_path, digit_folders):
    folder = tmp_path / "model"
    shutil.copytree(digit_folders["TensorFlow"], folder)
    next(folder.glob("variables/*.data-*")).unlink()
    with pytest.raises(ModelError, match=r"TensorFlow cannot load .*saved_model\.pb"):
        load(folder)


@pytest.mark.parametrize("size", [3, None])
def test_a_model_of_keras_3_that_tensorflow_has_saved_has_its_variables(tmp_path, size):
    import keras

    model = keras.Sequential([keras.Input((size, 4)), keras.layers.Dense(2, activation="tanh")])
    tf.saved_model.save(model, str(tmp_path))
    x = np.random.default_rng(0).normal(0, 1, (2, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(load(tmp_path).predict([x])[0], model(x), rtol=1e-5, atol=1e-6)


def test_a_cast_whose_answer_depends_on_the_place_has_one_record_a_call(tmp_path):
    """Groups saturate, and the rest wraps: docs/explanation/where-libraries-differ.md."""
    spec = tf.TensorSpec([None, 4], tf.float32, "x")
    model_zoo.save_savedmodel(tmp_path, lambda x: {"y": tf.cast(tf.cast(x, tf.uint8), tf.float32)}, spec)
    model = load(tmp_path)
    row = np.array([-1, 300, 3, 256] * 64 + [-1], np.float32)
    cast = tf.cast(row, tf.uint8).numpy()
    # Eight groups of 32, and one number more.
    assert cast[:4].tolist() == [0, 255, 3, 255] and cast[-1] == 255
    assert tf.cast(row.astype("i4"), tf.uint8).numpy()[:4].tolist() == [255, 44, 3, 0]
    assert "depends on the others in its batch" in model.one_by_one
