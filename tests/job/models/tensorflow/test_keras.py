from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from tests.support.lazy import Lazy
from tests.support.payloads import model_zoo

keras = Lazy("keras")


def load(folder, **options):
    return load_model(ModelOptions(str(folder), **options))


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_images_are_computed_as_keras_does_in_inference_mode(tmp_path, suffix):
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3), dtype="uint8", name="image"),
            layers.Rescaling(1 / 255),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3, name="scores"),
        ]
    )
    model_zoo.save_keras(tmp_path, model, suffix)
    served = load(tmp_path)
    assert list(map(str, served.inputs)) == ["image: uint8[?, 8, 8, 3]"]
    assert list(map(str, served.outputs)) == ["scores: float32[?, 3]"]
    for batch in (1, 3, 32):
        x = np.random.default_rng(batch).integers(0, 256, (batch, 8, 8, 3), np.uint8)
        np.testing.assert_allclose(served.predict([x])[0], model(x, training=False), rtol=1e-5, atol=1e-6)


def test_inputs_and_outputs_are_in_the_order_of_the_model(tmp_path):
    a, b = keras.Input((4,), name="a"), keras.Input((2,), name="b", dtype="int64")
    both = keras.layers.Concatenate()([a, keras.layers.Rescaling(1.0)(b)])
    model = keras.Model([b, a], [keras.layers.Dense(n, name=name)(both) for n, name in ((3, "second"), (2, "first"))])
    model_zoo.save_keras(tmp_path, model)
    x, y = np.array([[1, 2]]), np.ones((1, 4), np.float32)
    served = load(tmp_path)
    assert list(map(str, served.inputs)) == ["b: int64[?, 2]", "a: float32[?, 4]"]
    assert [spec.name for spec in served.outputs] == ["second", "first"]
    for mine, theirs in zip(served.predict([x, y]), model([x, y]), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    (first,) = load(tmp_path, inputs=("a", "b"), outputs=("first",)).predict([y, x])
    np.testing.assert_array_equal(first, served.predict([x, y])[1])


def test_a_dict_of_outputs_gives_them_their_names(tmp_path):
    x = keras.Input((2,), name="x")
    model = keras.Model({"x": x}, {"b": keras.layers.Dense(1)(x), "a": keras.layers.Dense(2)(x)})
    model_zoo.save_keras(tmp_path, model)
    values = np.ones((3, 2), np.float32)
    served = load(tmp_path)
    assert [spec.name for spec in served.outputs] == ["a", "b"]
    np.testing.assert_allclose(served.predict([values])[1], model({"x": values})["b"], rtol=1e-6)


def test_strings_are_looked_up(tmp_path):
    words = keras.Input((), dtype="string", name="words")
    model_zoo.save_keras(tmp_path, keras.Model(words, keras.layers.StringLookup(vocabulary=["one", "zwölf"])(words)))
    model = load(tmp_path)
    assert list(map(str, model.inputs)) == ["words: str[?]"]
    assert model.predict([np.array(["zwölf", "?", "one"], object)])[0].tolist() == [2, 0, 1]


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_python_code_is_refused_with_advice(tmp_path, suffix):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Lambda(lambda x: x * 2)])
    model_zoo.save_keras(tmp_path, model, suffix)
    with pytest.raises(ModelError, match=r"holds Python code \(a Lambda layer\), .* model\.export\('folder'\)"):
        load(tmp_path)


def test_a_class_of_the_users_own_is_refused_with_advice(tmp_path):
    class Mine(keras.layers.Layer):
        def call(self, x):
            return x * 2

    x = keras.Input((2,))
    model_zoo.save_keras(tmp_path, keras.Model(x, Mine()(x)))
    with pytest.raises(ModelError, match=r"needs a class that is not part of Keras: export it with model\.export"):
        load(tmp_path)


def test_weights_alone_are_refused(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras calls numpy in an old way
        keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ModelError, match=r"holds weights without the model: save it with model\.save"):
        load(tmp_path)


def test_a_model_that_was_never_built_is_refused(tmp_path):
    model_zoo.save_keras(tmp_path, keras.Sequential([keras.layers.Dense(1)]))
    with pytest.raises(ModelError, match="does not say what its inputs are"):
        load(tmp_path)


KERAS_2 = Path(__file__).parent / "golden-keras-2"
"""Files that Keras 2.20 (tf_keras) has written, and what it answers."""


@pytest.mark.parametrize("suffix", [".h5", ".keras", ".hdf5", ".H5"])
@pytest.mark.parametrize("name", ["nested", "recurrent"])
def test_files_of_keras_2_are_computed_as_it_did(tmp_path, name, suffix):
    shutil.copy(KERAS_2 / f"{name}{'.keras' if suffix == '.keras' else '.h5'}", tmp_path / f"model{suffix}")
    answers = np.load(KERAS_2 / "answers.npz")
    model = load(tmp_path)
    x = answers[f"{name}_x"].astype(model.inputs[0].dtype)
    np.testing.assert_allclose(model.predict([x])[0], answers[f"{name}_y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("oldest", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_a_sequential_of_before_2_4_has_its_input_in_the_first_layer(tmp_path, oldest, nested):
    layers = [keras.layers.Dense(5, activation="tanh", name="a"), keras.layers.Dense(2, name="b")]
    inner = [keras.Sequential([keras.Input((4,)), layers[0]], name="inner"), layers[1]] if nested else layers
    kept = keras.Sequential([keras.Input((4,)), *inner])
    model_zoo.save_keras(tmp_path, kept, ".h5")

    def older(config):
        """The configuration as the older versions wrote it."""
        found = []
        for layer in config["layers"]:
            if layer["class_name"] == "Sequential":
                found.append({"class_name": "Sequential", "config": older(layer["config"])})
            elif layer["class_name"] != "InputLayer":
                own = {key: layer["config"][key] for key in ("units", "activation", "use_bias")}
                own["name"] = f"dense/{layer['config']['name']}"
                shape = {} if found else {"batch_input_shape": [None, 4], "dtype": "float32"}
                found.append({"class_name": "Dense", "config": own | shape})
        return found if oldest else {"name": config["name"], "layers": found}

    with h5py.File(tmp_path / "model.h5", "r+") as file:
        config = json.loads(file.attrs["model_config"])["config"]
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": older(config)})
        file.attrs["keras_version"] = "2.2.4"
    x = np.random.default_rng(0).normal(0, 1, (3, 4)).astype(np.float32)
    np.testing.assert_allclose(load(tmp_path).predict([x])[0], kept(x), rtol=1e-5, atol=1e-6)


def hard_sigmoid(x):
    """As Keras 2 defines it; that of Keras 3 has another slope."""
    return np.clip(0.2 * x + 0.5, 0, 1)


def lstm(x, kernel, recurrent_kernel, bias):
    h = c = np.zeros((len(x), recurrent_kernel.shape[0]))
    for step in np.moveaxis(x, 1, 0):
        i, f, new, o = np.split(step @ kernel + h @ recurrent_kernel + bias, 4, 1)
        c = hard_sigmoid(f) * c + hard_sigmoid(i) * np.tanh(new)
        h = hard_sigmoid(o) * np.tanh(c)
    return h


def test_a_recurrent_layer_of_2_0_computes_as_it_did(tmp_path):
    """Its gates are hard sigmoids by default, its layers have no modules, and its keys are others."""
    both = keras.layers.Bidirectional(keras.layers.LSTM(3, name="lstm_1"), name="both")
    kept = keras.Sequential([keras.Input((4, 2)), both])
    rng = np.random.default_rng(0)
    weights = [rng.normal(0, 1, weight.shape).astype(np.float32) for weight in kept.get_weights()]
    kept.set_weights(weights)
    model_zoo.save_keras(tmp_path, kept, ".h5")
    neutral = {"kernel_initializer": {"class_name": "Zeros", "config": {}}, "kernel_regularizer": None}
    own = {"name": "lstm_1", "units": 3, "recurrent_activation": "hard_sigmoid", "implementation": 0, **neutral}
    outer = {"name": "both", "batch_input_shape": [None, 4, 2], "layer": {"class_name": "LSTM", "config": own}}
    with h5py.File(tmp_path / "model.h5", "r+") as file:
        layers = [{"class_name": "Bidirectional", "config": outer | {"merge_mode": "concat"}}]
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": layers})
        file.attrs["keras_version"] = "2.0.4"
    x = rng.normal(0, 1, (3, 4, 2)).astype(np.float32)
    expected = np.concatenate([lstm(x, *weights[:3]), lstm(x[:, ::-1], *weights[3:])], 1)
    np.testing.assert_allclose(load(tmp_path).predict([x])[0], expected, rtol=1e-4, atol=1e-5)


def test_a_state_of_a_fixed_batch_is_kept_from_call_to_call(tmp_path):
    """Trials leave nothing behind: the first answer is that of the layer's first call."""
    layer = keras.layers.GRU(2, stateful=True)
    model = keras.Sequential([keras.Input(batch_shape=(3, 4, 2)), layer])
    model_zoo.save_keras(tmp_path, model)
    served = load(tmp_path)
    assert "keeps a state between calls" in served.one_by_one
    x = np.random.default_rng(0).normal(0, 1, (1, 4, 2)).astype(np.float32)
    layer.reset_states()
    for _ in range(2):
        np.testing.assert_allclose(served.predict([x])[0], model(np.repeat(x, 3, 0))[:1], rtol=1e-4, atol=1e-5)


def test_a_graph_that_computes_something_else_than_the_model_is_refused(tmp_path):
    def saved(steps):
        layer = keras.layers.TimeDistributed(keras.layers.Dense(2), name="each")
        convolution = keras.layers.TimeDistributed(keras.layers.Conv1D(2, 3), name="steps")
        return keras.Sequential([keras.Input((steps, 8, 3)), convolution, layer])

    model_zoo.save_keras(tmp_path / "free", saved(None))
    with pytest.raises(ModelError, match=r"layer 'steps' \(TimeDistributed\) computes something else.*fixed size"):
        load(tmp_path / "free")
    model = saved(5)
    model_zoo.save_keras(tmp_path / "fixed", model)
    x = np.random.default_rng(0).normal(0, 1, (3, 5, 8, 3)).astype(np.float32)
    np.testing.assert_allclose(load(tmp_path / "fixed").predict([x])[0], model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("attention.h5", r"written by Keras 2\.20\.1, and Keras 3\S+ cannot read it: run tf\.saved_model\.save"),
        ("lambda.keras", r"holds Python code \(a Lambda layer\)"),
    ],
)
def test_what_keras_3_cannot_read_says_how_to_convert_it(tmp_path, file, message):
    shutil.copy(KERAS_2 / file, tmp_path)
    with pytest.raises(ModelError, match=message):
        load(tmp_path)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_file_that_is_cut_off_is_said_to_be(tmp_path, suffix):
    model_zoo.save_keras_digits(tmp_path, suffix)
    path = tmp_path / f"model{suffix}"
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ModelError, match="cut off: copy it again"):
        load(tmp_path)


def test_suffixes_in_upper_case_are_those_of_keras(tmp_path):
    model_zoo.save_keras_digits(tmp_path)
    (tmp_path / "model.keras").rename(tmp_path / "MODEL.KERAS")
    assert str(load(tmp_path).inputs[0]) == "x: float32[?, 64]"
