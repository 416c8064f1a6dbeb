"""The four formats of TensorFlow: a SavedModel, a frozen graph, a checkpoint and Keras."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.payloads import model_zoo
from tests.support.payloads.engines.engine import ALL, HEIGHT, NUMBERS, WIDTH, Engine, Shape

Operation = Callable[..., Any]


def twice(x: Any, name: str | None = None) -> Any:
    import tensorflow as tf

    return tf.concat([x, x], 1, name=name)


def row_means(x: Any, name: str | None = None) -> Any:
    import tensorflow as tf

    return tf.reduce_mean(x, 2, name=name)


def doubled(x: Any, name: str | None = None) -> Any:
    import tensorflow as tf

    return tf.add(x, x, name=name)


def save_savedmodel(operation: Operation, folder: Path, dtype: str = "float32", shape: Shape = ()) -> None:
    import tensorflow as tf

    spec = tf.TensorSpec([None, *shape], _type(dtype), "x")
    model_zoo.save_savedmodel(folder, lambda x: {"y": operation(x)}, spec)


def save_frozen_graph(operation: Operation, folder: Path, dtype: str = "float32", shape: Shape = ()) -> None:
    with model_zoo.graph_session() as session:
        _graph(operation, dtype, shape)
        model_zoo.save_frozen_graph(folder, session.graph, {"input_names": ["x"], "output_names": ["y"]})


def save_checkpoint(operation: Operation, folder: Path, dtype: str = "float32", shape: Shape = ()) -> None:
    import tensorflow as tf

    with model_zoo.graph_session() as session:
        _graph(operation, dtype, shape)
        tf.compat.v1.Variable(0.0)
        model_zoo.save_checkpoint(folder, session)


def _graph(operation: Operation, dtype: str, shape: Shape) -> None:
    import tensorflow as tf

    operation(tf.compat.v1.placeholder(_type(dtype), [None, *shape], "x"), name="y")


def _type(dtype: str) -> Any:
    import tensorflow as tf

    return tf.string if dtype == "str" else tf.as_dtype(dtype)


def save_keras_twice(folder: Path, dtype: str, shape: Shape) -> None:
    import keras

    x = keras.Input(shape, dtype=dtype, name="x")
    model_zoo.save_keras(folder, keras.Model(x, keras.layers.Concatenate(1, name="y", dtype=dtype)([x, x])))


def save_keras_row_means(folder: Path) -> None:
    import keras

    x = keras.Input((HEIGHT, WIDTH, 3), name="x")
    rows = keras.layers.AveragePooling2D((1, WIDTH))(x)
    model_zoo.save_keras(folder, keras.Model(x, keras.layers.Reshape((HEIGHT, 3), name="y")(rows)))


def save_keras_doubled(folder: Path) -> None:
    import keras

    x = keras.Input((), name="x")
    model_zoo.save_keras(folder, keras.Model(x, keras.layers.Add(name="y")([x, x])))


def save_keras_words(folder: Path, shape: Shape) -> None:
    """`x` str [?, *shape] → `y` int64 [?, *shape]; Keras can look words up, but not repeat them."""
    import keras

    x = keras.Input(shape, dtype="string", name="x")
    lookup = keras.layers.StringLookup(vocabulary=[f"word {number} ü" for number in range(0, 250, 2)], name="y")
    model_zoo.save_keras(folder, keras.Model(x, lookup(x)))


def call_saved_model(folder: Path, x: np.ndarray, output: str) -> Any:
    import tensorflow as tf

    return tf.saved_model.load(str(folder)).signatures["serving_default"](x=tf.constant(x))[output]


def call_frozen_graph(folder: Path, x: np.ndarray, output: str) -> Any:
    import tensorflow as tf

    graph = tf.compat.v1.GraphDef.FromString((folder / "frozen_inference_graph.pb").read_bytes())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(graph, name="")
        return session.run(f"{output}:0", {"x:0": x})


def call_checkpoint(folder: Path, x: np.ndarray, output: str) -> Any:
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.train.import_meta_graph(str(folder / "model.ckpt.meta")).restore(
            session, str(folder / "model.ckpt")
        )
        return session.run(f"{output}:0", {"x:0": x})


def call_keras(folder: Path, x: np.ndarray, output: str) -> Any:
    import keras

    return keras.saving.load_model(folder / "model.keras")(x)


def _engine(model_file: str, save_digits: Any, save: Any, call: Any) -> Engine:
    return Engine(
        model_file,
        save_digits,
        partial(save, twice),
        ALL,
        partial(save, row_means, shape=(HEIGHT, WIDTH, 3)),
        call,
        partial(save, doubled),
    )


ENGINES = {
    "TensorFlow": _engine(
        "*.pb",
        model_zoo.save_savedmodel_digits,
        save_savedmodel,
        call_saved_model,
    ),
    "TensorFlow frozen graph": _engine(
        "*.pb", model_zoo.save_frozen_graph_digits, save_frozen_graph, call_frozen_graph
    ),
    "TensorFlow checkpoint": _engine(
        "*.meta",
        model_zoo.save_checkpoint_digits,
        save_checkpoint,
        call_checkpoint,
    ),
    "Keras": Engine(
        "*.keras",
        model_zoo.save_keras_digits,
        save_keras_twice,
        NUMBERS,
        save_keras_row_means,
        call_keras,
        save_keras_doubled,
        save_keras_words,
    ),
}
