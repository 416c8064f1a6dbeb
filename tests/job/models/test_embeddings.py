"""Poolings, layers and prompts of sentence-transformers, against formulas of its classes."""

import json

import numpy as np
import pytest

from cluster_serving.job.models.text import layers, tokenizer
from cluster_serving.job.models.text.layers import Layer, read_safetensors
from cluster_serving.job.models.text.pooling import POOLINGS
from cluster_serving.launcher.config import model
from cluster_serving.launcher.origins import sentence_transformers
from cluster_serving.protocol.errors import ModelError
from tests.support.fixtures.handled import load, results
from tests.support.payloads import texts

TEXTS = ["the cat sat on the mat", "a dog", "", "then the old bird sang in the rain and the dog ran"]
PROMPT = "the cat "


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    texts.save_reader(folder)
    return folder


def text(value):
    return {"text": np.array(value, object)}


def weighted(tokens, first=0):
    weights = np.arange(first + 1, first + 1 + len(tokens), dtype="f4")
    return (tokens * weights[:, None]).sum(axis=0) / weights.sum()


POOLED = {
    "max": lambda tokens: tokens.max(axis=0),
    "mean_sqrt_len_tokens": lambda tokens: tokens.sum(axis=0) / np.sqrt(len(tokens)),
    "weightedmean": weighted,
    "lasttoken": lambda tokens: tokens[-1],
    "cls+mean": lambda tokens: np.concatenate([tokens[0], tokens.mean(axis=0)]),
}


@pytest.mark.parametrize("pooling", POOLED)
def test_vectors_of_tokens_are_pooled_as_by_the_library(folder, pooling):
    found = results(load(folder, pooling=pooling), *map(text, TEXTS))
    for result, expected in zip(found, texts.tokens(*TEXTS), strict=True):
        np.testing.assert_allclose(result["embedding"], POOLED[pooling](expected), atol=1e-5)


def test_a_prompt_stands_before_each_text_and_pooling_may_leave_it_out(folder):
    vectors = texts.tokens(*(PROMPT + text for text in TEXTS))
    # [CLS] the cat
    for options, pooled in [
        ({"pooling": "mean"}, lambda tokens: tokens.mean(axis=0)),
        ({"pooling": "mean", "pool_prompt": False}, lambda tokens: tokens[3:].mean(axis=0)),
        ({"pooling": "cls", "pool_prompt": False}, lambda tokens: tokens[0]),
        ({"pooling": "weightedmean", "pool_prompt": False}, lambda tokens: weighted(tokens[3:], 3)),
    ]:
        found = results(load(folder, prompt=PROMPT, **options), *map(text, TEXTS))
        for result, expected in zip(found, vectors, strict=True):
            np.testing.assert_allclose(result["embedding"], pooled(expected), atol=1e-5)


def save_layer(folder, config, **tensors):
    """A folder as the library saves it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    header, data = {}, b""
    for name, array in tensors.items():
        dtype = {"<f4": "F32", "<f2": "F16", "<f8": "F64", "<u2": "BF16"}[array.dtype.str]
        offsets = [len(data), len(data) + array.nbytes]
        header[name.replace("__", ".")] = {"dtype": dtype, "shape": array.shape, "data_offsets": offsets}
        data += array.tobytes()
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return folder


def test_layers_compute_with_the_pooled_vector(folder):
    random = np.random.default_rng(0)
    matrix, bias = random.normal(size=(8, 16)).astype("f4"), random.normal(size=8).astype("f4")
    save_layer(folder / "2_Dense", {}, linear__weight=matrix, linear__bias=bias)
    scale, shift = random.normal(size=(2, 8)).astype("f4")
    save_layer(folder / "3_LayerNorm", {"dimension": 8}, norm__weight=scale, norm__bias=shift)
    model = load(folder, pooling="mean", embedding_layers=("2_Dense", "3_LayerNorm"), normalize=True)
    assert model.report().model.endswith("embedding: float32[?, 8]")
    for result, tokens in zip(results(model, *map(text, TEXTS)), texts.tokens(*TEXTS), strict=True):
        dense = np.tanh(tokens.mean(axis=0) @ matrix.T + bias)
        normed = (dense - dense.mean()) / np.sqrt(dense.var() + 1e-5) * scale + shift
        np.testing.assert_allclose(result["embedding"], normed / np.linalg.norm(normed), atol=1e-5)


def test_a_vector_does_not_depend_on_those_beside_it(tmp_path):
    random = np.random.default_rng(0)
    weights = {"linear__weight": random.normal(size=(256, 384)).astype("f4")}
    layer = Layer(save_layer(tmp_path / "2_Dense", {}, **weights))
    vectors = random.normal(size=(32, 384)).astype("f4")
    np.testing.assert_array_equal(layer(vectors), np.concatenate([layer(vector[None]) for vector in vectors]))


def test_a_prompt_that_takes_all_tokens_of_a_text_is_refused(folder):
    with pytest.raises(ModelError, match=r"prompt takes all 4 tokens of a text \(maxTokens\)"):
        load(folder, pooling="mean", prompt="the old cat ran ", max_tokens=4)


@pytest.mark.parametrize("dtype", ["f2", "f8", "bfloat16"])
def test_weights_of_other_floats(tmp_path, dtype):
    matrix = np.array([[1.5, -2], [0.25, 4]], "f4")
    saved = (matrix.view("u4") >> 16).astype("<u2") if dtype == "bfloat16" else matrix.astype(dtype)
    config = {"activation_function": "torch.nn.modules.linear.Identity", "use_residual": True}
    layer = Layer(save_layer(tmp_path / "2_Dense", config, linear__weight=saved))
    np.testing.assert_array_equal(layer(np.array([[1, 2]], "f4")), [[1 + 1.5 - 4, 2 + 0.25 + 8]])


def test_a_layer_that_does_not_fit_is_refused_at_the_start(folder, tmp_path):
    small = np.zeros((2, 4), "f4")
    save_layer(folder / "small", {}, linear__weight=small)
    with pytest.raises(ModelError, match="small of embeddingLayers takes vectors of 4 numbers, and gets 16"):
        load(folder, pooling="mean", embedding_layers=("small",))
    with pytest.raises(ModelError, match="expected config.json and model.safetensors"):
        load(folder, pooling="mean", embedding_layers=("missing",))
    save_layer(folder / "other", {"activation_function": "torch.nn.GELU"}, linear__weight=small)
    with pytest.raises(ModelError, match="has the activation GELU; expected Identity, Tanh"):
        load(folder, pooling="mean", embedding_layers=("other",))
    (tmp_path / "cut").write_bytes(b"1")
    with pytest.raises(ValueError, match="cut is cut off"):
        read_safetensors(tmp_path / "cut")


def test_other_keys_that_do_not_fit_are_refused(folder):
    with pytest.raises(ModelError, match="'median' is not one of mean, cls"):
        load(folder, pooling="median")
    with pytest.raises(ModelError, match="embeddingLayers is set without pooling"):
        load(folder, embedding_layers=("2_Dense",))


def test_a_pair_of_texts_is_tokenized_together(folder, tmp_path):
    import torch

    model = load(folder, tokenizer="pair", pooling="mean")
    assert model.report().model.startswith("ONNX Runtime on cpu: text: str[?], text_pair: str[?]")
    (found,) = results(model, {"text": np.array("the cat", object), "text_pair": np.array("a dog", object)})
    encoding = texts.save_tokenizer(tmp_path).encode("the cat", "a dog")
    ids, types = torch.tensor([encoding.ids]), torch.tensor([encoding.type_ids])
    assert 1 in encoding.type_ids
    with torch.no_grad():
        expected = texts.bert()(ids, torch.ones_like(ids), types)[0].mean(axis=0)
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)


def test_the_launcher_knows_the_same_poolings_layers_and_limits():
    assert {*model.POOLING.split(", ")} == POOLINGS.keys()
    assert {*sentence_transformers.ACTIVATIONS} == layers.ACTIVATIONS.keys()
    assert (sentence_transformers.WEIGHTS, sentence_transformers.NO_LIMIT) == (layers.WEIGHTS, tokenizer.NO_LIMIT)
