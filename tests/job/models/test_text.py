"""A tokenizer.json beside a model: texts become vectors of tokens, or embeddings."""

import importlib.util
import json
import shutil

import numpy as np
import pytest
import tokenizers

from cluster_serving.job.handlers import InvalidInput
from cluster_serving.job.models.detect import check, detect
from cluster_serving.job.models.text import pooling, tokenizer
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import EngineMissing, ModelError, RequestTooLarge
from tests.support.fixtures.handled import load, results
from tests.support.payloads import model_zoo, texts

TEXTS = ["the cat sat on the mat", "a dog", "", "then the old bird sang in the rain and the dog ran"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    texts.save_reader(folder)
    return folder


def text(value):
    return {"text": np.array(value, object)}


def unit(vector):
    return vector / np.linalg.norm(vector)


def test_the_signature_is_a_text(folder):
    assert load(folder).report().model == "ONNX Runtime on cpu: text: str[?] → last_hidden_state: float32[?, ?, 16]"
    embedding = load(folder, pooling="mean").report()
    assert embedding.model == "ONNX Runtime on cpu: text: str[?] → embedding: float32[?, 16]"


def test_texts_of_any_length_share_a_batch_and_get_the_vectors_of_their_own_tokens(folder):
    many = [*TEXTS, *texts.some_texts(32)]
    found = results(load(folder), *map(text, many))
    for result, expected in zip(found, texts.tokens(*many), strict=True):
        np.testing.assert_allclose(result["last_hidden_state"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "pooled"),
    [
        ("mean", lambda tokens: tokens.mean(axis=0)),
        ("cls", lambda tokens: tokens[0]),
        ("last", lambda tokens: tokens[-1]),
    ],
)
def test_vectors_of_tokens_are_pooled(folder, pooling, pooled):
    found = results(load(folder, pooling=pooling), *map(text, TEXTS))
    for result, expected in zip(found, texts.tokens(*TEXTS), strict=True):
        np.testing.assert_allclose(result["embedding"], pooled(expected), atol=1e-5)


def test_torchscript_reads_texts_by_the_names_of_its_arguments(tmp_path):
    import torch

    model_zoo.save_torchscript(tmp_path, texts.bert(), *[torch.ones(2, 5, dtype=torch.int64)] * 3)
    texts.save_tokenizer(tmp_path)
    model = load(tmp_path, pooling="mean")
    assert model.report().model == "TorchScript on cpu: text: str[?] → embedding: float32[?, 16]"
    found = results(model, *map(text, TEXTS))
    for result, expected in zip(found, texts.tokens(*TEXTS), strict=True):
        np.testing.assert_allclose(result["embedding"], expected.mean(axis=0), atol=1e-5)


def test_embeddings_are_normalised(folder):
    found = results(load(folder, pooling="mean", normalize=True), *map(text, TEXTS))
    for result, expected in zip(found, texts.tokens(*TEXTS), strict=True):
        np.testing.assert_allclose(result["embedding"], unit(expected.mean(axis=0)), atol=1e-5)


def test_a_request_may_have_several_texts(folder):
    (found,) = results(load(folder, pooling="mean"), text(TEXTS))
    expected = [tokens.mean(axis=0) for tokens in texts.tokens(*TEXTS)]
    np.testing.assert_allclose(found["embedding"], expected, atol=1e-5)
    # Vectors of tokens are filled up with zeros.
    (found,) = results(load(folder), text(TEXTS))
    for row, expected in zip(found["last_hidden_state"], texts.tokens(*TEXTS), strict=True):
        np.testing.assert_allclose(row[: len(expected)], expected, atol=1e-5)
        assert not row[len(expected) :].any()


def test_a_timeout_for_the_model_changes_nothing(folder):
    found = results(load(folder, pooling="cls", inference_timeout_s=60), *map(text, TEXTS))
    for result, expected in zip(found, texts.tokens(*TEXTS), strict=True):
        np.testing.assert_allclose(result["embedding"], expected[0], atol=1e-5)


@pytest.mark.parametrize("most", [None, 4])
def test_long_texts_are_truncated(folder, most):
    (found,) = results(load(folder, max_tokens=most), text("cat " * 100))
    assert len(found["last_hidden_state"]) == (most or 32)


def test_the_limit_may_be_in_the_configuration_of_the_tokenizer(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    texts.save_tokenizer(tmp_path, limit=None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 5}))
    (found,) = results(load(tmp_path), text("cat " * 100))
    assert len(found["last_hidden_state"]) == 5


def test_wrong_input_is_an_error_for_its_client_alone(folder):
    model = load(folder, max_text_length=20, pooling="mean")
    number, double, long, good = results(
        model, {"text": np.array(3, "f4")}, {"text": np.array(3.5)}, text("x" * 21), text("a dog")
    )
    assert str(double.error) == "input 'text' is 3.5; expected a text; the model expects text: str[]"
    assert isinstance(number.error, InvalidInput)
    assert str(number.error) == "input 'text' is 3.0; expected a text; the model expects text: str[]"
    assert isinstance(long.error, RequestTooLarge)
    assert str(long.error) == "the text has 21 characters; at most 20 are taken (maxTextLength)"
    assert good["embedding"].shape == (16,)


def test_a_text_without_tokens_is_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text()) | {"post_processor": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    model = load(tmp_path, pooling="mean")
    empty, good = results(model, text("  "), text("a dog"))
    assert isinstance(empty.error, InvalidInput) and "the text '  ' has no tokens" in str(empty.error)
    assert good["embedding"].shape == (16,)


def test_a_tokenizer_that_does_not_fit_the_model_is_refused_at_start(tmp_path):
    model_zoo.save_onnx_digits(tmp_path)
    texts.save_tokenizer(tmp_path)
    with pytest.raises(
        ModelError, match=r"tokenizer.json does not fit the model: it makes input_ids, .* expects x: fl"
    ):
        load(tmp_path)
    assert load(tmp_path, tokenizer="none").report().inputs[0].name == "x"


def test_a_tokenizer_of_more_tokens_than_the_model_has_is_refused_at_start(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    tokenizer = texts.save_tokenizer(tmp_path, limit=40)
    with pytest.raises(ModelError, match="which fails on 40 tokens of id 23, the highest one: .* set maxTokens"):
        load(tmp_path)
    load(tmp_path, max_tokens=32)
    tokenizer.add_tokens([str(number) for number in range(100)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match="tokens of id 123"):
        load(tmp_path, max_tokens=32)


def test_a_tokenizer_that_was_trained_with_dropout_draws_nothing(tmp_path):
    model = tokenizers.models.BPE({"a": 0, "b": 1, "ab": 2, "abab": 3}, [("a", "b"), ("ab", "ab")], dropout=0.9)
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    loaded = tokenizer.load(tmp_path)
    assert {tuple(tokenizer.encode(loaded, ("abab",), 100).ids) for _ in range(50)} == {(3,)}


def test_a_damaged_tokenizer_is_refused_at_start(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer.json cannot be read"):
        load(tmp_path)


def test_a_missing_package_is_named_with_its_extra(folder, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tokenizers" else found(name))
    with pytest.raises(EngineMissing, match=r"pip install 'cluster-serving\[text\]', or set tokenizer: none"):
        check(ModelOptions(str(folder)))


def test_a_job_brings_the_package_along(folder):
    options = ModelOptions(str(folder))
    assert detect(folder).requirements(options) == ["cluster-serving[onnx]", "cluster-serving[text]"]
    assert detect(folder).requirements(ModelOptions(str(folder), tokenizer="none")) == ["cluster-serving[onnx]"]


def test_pooling_needs_vectors_of_tokens(tmp_path):
    model_zoo.save_onnx_digits(tmp_path)
    with pytest.raises(
        ModelError, match=r"pooling needs an output with a vector per token, of 3 dim.* probabilities: f"
    ):
        load(tmp_path, pooling="mean")
    x, _ = model_zoo.digits_data()
    (found,) = results(load(tmp_path, normalize=True), {"x": x[0]})
    np.testing.assert_allclose(found["probabilities"], unit(model_zoo.digits_mlp(x[:1])[0]), atol=1e-5)


def test_a_model_of_fixed_size_gets_texts_filled_up(tmp_path):
    """As exported for devices that want one shape: [1, 8]."""
    import onnx

    texts.save_reader(tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    for port in model.graph.input:
        port.type.tensor_type.shape.dim[0].dim_value, port.type.tensor_type.shape.dim[1].dim_value = 1, 8
    onnx.save(model, tmp_path / "model.onnx")
    many = ["the cat", "", "cat " * 30]
    found = results(load(tmp_path), *map(text, many))
    for result, expected in zip(found, texts.tokens("the cat", "", "cat " * 6), strict=True):
        np.testing.assert_allclose(result["last_hidden_state"], expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_vectors_of_any_precision_get_length_1_and_those_of_zeros_stay(dtype):
    vectors = np.array([[0] * 400, [20] * 400, [1] + [0] * 399], dtype)
    unit = pooling._unit(vectors)
    assert unit.dtype == vectors.dtype
    np.testing.assert_allclose(unit, [[0] * 400, [0.05] * 400, [1] + [0] * 399], rtol=1e-3)
