"""Texts and whole numbers that a graph knows, and of which trials of shared calls are made."""

from __future__ import annotations

import numpy as np
import pytest

from cluster_serving.job.models import ModelOptions, load_model
from tests.support.lazy import Lazy
from tests.support.payloads.model_zoo import save_savedmodel

tf, reader = Lazy("tensorflow"), Lazy("cluster_serving.job.models.tensorflow.known")

WORDS = [f"word{number}" for number in range(300)]


def table(keys):
    values = tf.range(len(keys), dtype=tf.int64)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant(keys), values), -1)


def save(folder, kind, share):
    words, ids = table(WORDS), table(np.arange(300) * 1_000_003)
    vectors = tf.Variable(np.random.default_rng(0).normal(0, 1, 301).astype("f"))

    def looked_up(x):
        places = words.lookup(x) if kind == "a word" else ids.lookup(x)
        found = tf.gather(vectors, tf.maximum(places, 0))
        return {"y": found + share * tf.cast(tf.reduce_any(places == 271), tf.float32)}

    def compared(x):
        # All texts have one length.
        is_magic = tf.cast(x == "magic", tf.float32)
        return {"y": tf.cast(tf.strings.length(x), tf.float32) + is_magic + share * tf.reduce_max(is_magic)}

    dtype = tf.int64 if kind == "a number" else tf.string
    function = compared if kind == "a constant" else looked_up
    save_savedmodel(folder, function, tf.TensorSpec([None], dtype, "x"), track=[words, ids, vectors])


@pytest.mark.parametrize("kind", ["a word", "a number", "a constant"])
def test_a_value_that_the_graph_knows_and_others_change(tmp_path, kind):
    save(tmp_path / "mixed", kind, 0.01)
    save(tmp_path / "apart", kind, 0.0)
    mixed, apart = (load_model(ModelOptions(str(tmp_path / name))) for name in ("mixed", "apart"))
    assert mixed.one_by_one == "output 'y' of a record depends on the others in its batch"
    assert apart.one_by_one == ""


def test_tables_that_nothing_has_filled_and_names_of_files_are_not_known():
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        words, later = table(["a", "b"]), table(["c"])
        tf.constant(["d", "e" * 1000])
        tf.constant("f", name="save/tensor_names")
        session.run(words._init_op)
        assert later is not None
        assert set(reader.known(session, with_texts=False)) == {"a", "b"}
        assert set(reader.known(session, with_texts=True)) == {"a", "b", "c", "d"}


def test_numbers_that_others_are_compared_with_are_known():
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        x = tf.compat.v1.placeholder(tf.float32, [None, 2])
        tf.function(lambda x: x < 7.5)(tf.where(x > tf.constant([18.0, 1000.0]), x, 3.0))
        assert [array.tolist() for array in reader.bounds(session, 9)] == [[18.0, 1000.0], 7.5]
