"""Texts and records of different sizes: client, Redis, the model, and back."""

import numpy as np
import pytest

from cluster_serving.client import InvalidInput, RequestTooLarge
from tests.support.payloads import texts

TEXTS = ["the cat sat on the mat", "a dog", *texts.some_texts(60)]


def text(value):
    return {"text": np.array(value, object)}


def test_texts_become_embeddings(served, front, tmp_path):
    texts.save_reader(tmp_path)
    queue, _ = served(
        jobName="texts", modelPath=tmp_path, pooling="mean", normalize=True, maxTextLength=500, inferenceTimeout=60
    )
    expected = []
    for tokens in texts.tokens(*TEXTS):
        mean = tokens.mean(axis=0)
        expected.append(mean / np.linalg.norm(mean))
    found = list(queue.predict_many(map(text, TEXTS), in_flight=40, timeout=60))
    np.testing.assert_allclose([result["embedding"] for result in found], expected, atol=1e-5)
    np.testing.assert_allclose(queue.predict(text(TEXTS[:9]), timeout=30)["embedding"], expected[:9], atol=1e-5)

    with pytest.raises(InvalidInput, match=r"input 'text' is 5; expected a text; the model expects text: str\[\]"):
        queue.predict({"text": 5}, timeout=30)
    with pytest.raises(RequestTooLarge, match="the text has 501 characters"):
        queue.predict(text("x" * 501), timeout=30)
    plain = [queue.predict({"text": one}, timeout=30)["embedding"] for one in TEXTS[:2]]
    np.testing.assert_allclose(plain, expected[:2], atol=1e-5)

    assert_http_answers(front, expected)


def assert_http_answers(front, expected):
    url = "/v2/models/texts"
    assert front.get(url).json()["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1, 1]}]
    assert front.get(url).json()["outputs"] == [{"name": "embedding", "datatype": "FP32", "shape": [-1, 16]}]
    inputs = [{"name": "text", "datatype": "BYTES", "shape": [3], "data": TEXTS[:3]}]
    answer = front.post(f"{url}/infer", json={"inputs": inputs}).json()["outputs"][0]
    np.testing.assert_allclose(np.reshape(answer["data"], answer["shape"]), expected[:3], atol=1e-5)
    body = {"instances": [{"text": one} for one in TEXTS[:2]]}
    answer = front.post("/v1/models/texts:predict", json=body).json()
    np.testing.assert_allclose(answer["predictions"], expected[:2], atol=1e-5)
    made = front.post("/v1/embeddings", json={"model": "texts", "input": TEXTS[:3]}).json()
    np.testing.assert_allclose([one["embedding"] for one in made["data"]], expected[:3], atol=1e-5)
    assert made["usage"]["prompt_tokens"] == sum(map(len, texts.tokens(*TEXTS[:3])))
    refused = front.post("/models/texts/predict", json={"instances": [{"text": 5}]})
    assert refused.status_code == 400 and "text is 5; expected a text; the model expects text: str[?]" in refused.text


def test_requests_of_different_sizes_share_batches(served, tmp_path):
    texts.save_model(tmp_path)
    queue, _ = served(
        jobName="sizes", modelPath=tmp_path, padding=dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), 0)
    )
    tokenizer = texts.save_tokenizer(tmp_path / "elsewhere")
    encodings = [tokenizer.encode(one) for one in TEXTS]
    records = [
        {
            "input_ids": np.array(one.ids),
            "attention_mask": np.array(one.attention_mask),
            "token_type_ids": np.array(one.type_ids),
        }
        for one in encodings
    ]
    found = list(queue.predict_many(records, in_flight=60, timeout=60))
    for result, expected in zip(found, texts.tokens(*TEXTS), strict=True):
        np.testing.assert_allclose(result["last_hidden_state"], expected, atol=1e-5)
    with pytest.raises(InvalidInput, match=r"input 'input_ids' is int64\[1, 2, 3\]"):
        queue.predict(dict.fromkeys(records[0], np.zeros((1, 2, 3), "i8")), timeout=30)
