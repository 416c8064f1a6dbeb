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

X = np.ones((3, 4), np.float32)


def load(folder, **options):
    return load_model(ModelOptions(str(folder), **options))


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """A checkpoint as training leaves it, and what its output is for X."""
    folder = tmp_path_factory.mktemp("training")
    with model_zoo.graph_session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], "x")
        labels = tf.compat.v1.placeholder(tf.int64, [None], "labels")
        keep = tf.compat.v1.placeholder_with_default(1.0, [], "keep")
        w = tf.compat.v1.get_variable("w", [4, 3])
        odds = tf.nn.dropout(x, rate=1 - keep) @ w
        p = tf.nn.softmax(odds, name="probabilities")
        tf.reduce_mean(tf.cast(tf.equal(tf.argmax(p, 1, name="class"), labels), tf.float32), name="accuracy")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, odds), name="loss")
        tf.compat.v1.train.AdamOptimizer().minimize(loss)
        model_zoo.save_checkpoint(folder, session)
        return folder, session.run(p, {x: X})


def test_inputs_and_outputs_may_be_named_by_the_options(training):
    folder, expected = training
    model = load(folder, inputs=("x",), outputs=("probabilities", "class:0"))
    assert list(map(str, model.inputs)) == ["x: float32[?, 4]"]
    probabilities, label = model.predict([X])
    np.testing.assert_allclose(probabilities, expected, rtol=1e-6)
    assert label.dtype == np.int64


def test_the_inputs_are_what_the_outputs_need(training):
    assert [spec.name for spec in load(training[0], outputs=("probabilities",)).inputs] == ["x"]


def test_a_json_may_name_them_as_for_a_frozen_graph(training):
    folder, expected = training
    meta = folder / "graph_meta.json"
    meta.write_text(json.dumps({"input_names": ["x:0"], "output_names": ["probabilities:0"]}))
    try:
        np.testing.assert_allclose(load(folder).predict([X])[0], expected, rtol=1e-6)
    finally:
        meta.unlink()


def test_a_training_graph_without_names_is_refused_with_candidates(training):
    with pytest.raises(ModelError, match="does not say what its output is: name it in `outputs`.* probabilities:0"):
        load(training[0])


def test_several_ends_are_refused_with_their_names(tmp_path):
    with model_zoo.graph_session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], "x") * tf.compat.v1.get_variable("w", [4])
        tf.identity(x, "first")
        tf.identity(x, "second")
        model_zoo.save_checkpoint(tmp_path, session)
    with pytest.raises(ModelError, match="It may be one of first:0, second:0"):
        load(tmp_path)
    assert [spec.name for spec in load(tmp_path, outputs=("second",)).outputs] == ["second"]


def test_lookup_tables_are_initialized(tmp_path):
    with model_zoo.graph_session() as session:
        words = tf.compat.v1.placeholder(tf.string, [None], "words")
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["one", "two"], [1, 2]), 0)
        tf.compat.v1.get_variable("unused", [1])
        tf.identity(table.lookup(words), "number")
        model_zoo.save_checkpoint(tmp_path, session)
    assert load(tmp_path).predict([np.array(["two", "three"], object)])[0].tolist() == [2, 0]


def test_missing_values_are_refused(training, tmp_path):
    for path in training[0].iterdir():
        if ".data-" not in path.name:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(ModelError, match=r"TensorFlow checkpoint cannot load .*model\.ckpt\.meta"):
        load(tmp_path, outputs=("probabilities",))
