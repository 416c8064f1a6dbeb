"""Numbers of tokens in answers of OpenAI's API, which the job counts."""

import json

import httpx
import pytest

from tests.support.fixtures.generating import generating
from tests.support.payloads import texts

TEXT = "the cat sat on the mat"

WRITER = """
    class Handler:
        inputs = {"prompt": "str", "system": "str"}
        outputs = {"text": "str", "finish_reason": "str"}

        def predict(self, batch):
            for word in ("a dog ", "ran ", ""):
                yield [{"text": word, "finish_reason": "" if word else "stop"}] * len(batch["prompt"])
    """

TALKER = """
    class Handler:
        inputs = {"messages": "str"}
        outputs = {"text": "str"}

        def predict(self, batch):
            return {"text": ["the old house"] * len(batch["messages"])}
    """

COUNTER = """
    class Handler:
        inputs = {"prompt": "str"}

        def predict(self, batch):
            yield [{"text": "a dog", "prompt_tokens": 100} for _ in batch["prompt"]]
            yield [{"text": " ran"} for _ in batch["prompt"]]
            yield [{"prompt_tokens": 101} for _ in batch["prompt"]]
    """

VECTORS = """
    import numpy as np

    class Handler:
        inputs = {"text": "str"}
        outputs = {"embedding": "float32[2]"}

        def predict(self, batch):
            return {"embedding": np.zeros((len(batch["text"]), 2), "f4")}
    """


@pytest.fixture
def post(serve):
    """Sends a request, and returns the answer, or the last event that has content."""
    url = serve().url

    def send(path, **body):
        answer = httpx.post(f"{url}{path}", json=body, timeout=30)
        assert answer.status_code == 200, answer.text
        return json.loads(answer.text.split("data: ")[-2]) if body.get("stream") else answer.json()

    return send


@pytest.fixture
def model(redis_server, job, tmp_path):
    """Runs a handler beside a tokenizer of words between [CLS] and [SEP]."""
    texts.save_tokenizer(tmp_path)

    def run(code, **options):
        return generating(redis_server.port, job, tmp_path, code, **options)

    return run


def counted(answer):
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage.get("completion_tokens", 0)
    return usage["prompt_tokens"], usage.get("completion_tokens")


def test_a_tokenizer_beside_a_handler_counts_prompt_and_text(model, job, post):
    with model(WRITER):
        answer = post("/v2/models/x/infer".replace("x", job), inputs=[text("prompt"), text("system")])
        assert [output["name"] for output in answer["outputs"]] == ["text", "finish_reason"]
        user, system = {"role": "user", "content": TEXT}, {"role": "system", "content": "old"}
        for asked in ({}, {"stream": True, "stream_options": {"include_usage": True}}):
            # Six words and the system's word, each text with [CLS] and [SEP]; an empty system has these two.
            chat = post("/v1/chat/completions", model=job, messages=[system, user], **asked)
            assert counted(chat) == (11, 3)
            # A prompt counts once, however many choices it has.
            assert counted(post("/v1/chat/completions", model=job, messages=[user], n=2, **asked)) == (10, 6)


def text(name):
    return {"name": name, "datatype": "BYTES", "shape": [1], "data": [TEXT]}


def test_of_all_messages_the_texts_count(model, job, post):
    with model(TALKER):
        parts = [{"type": "text", "text": "a dog"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
        turns = [{"role": "user", "content": parts}, {"role": "assistant", "content": None}, {"role": "user"}]
        told = {"role": "tool", "tool_call_id": "1", "content": TEXT}
        assert counted(post("/v1/chat/completions", model=job, messages=[*turns, told])) == (8, 3)


def test_the_numbers_of_a_handler_go_before(model, job, post):
    with model(COUNTER):
        for asked in ({}, {"stream": True, "stream_options": {"include_usage": True}}):
            assert counted(post("/v1/completions", model=job, prompt=TEXT, **asked)) == (101, 3)


def test_a_long_prompt_counts_as_it_is_cut_and_a_long_text_whole(model, job, post):
    code = TALKER.replace("messages", "prompt").replace('"the old house"', "'cat ' * 50")
    with model(code, max_text_length=400):
        assert counted(post("/v1/completions", model=job, prompt="dog " * 50)) == (32, 50)
        # Texts of more characters are not counted.
        assert counted(post("/v1/completions", model=job, prompt="dog " * 101)) == (0, 50)


@pytest.mark.parametrize(("options", "content"), [({"tokenizer": "none"}, None), ({}, "no JSON")])
def test_what_nothing_counts_is_0(model, job, post, tmp_path, options, content):
    if content:
        (tmp_path / "tokenizer.json").write_text(content)
    with model(TALKER.replace("messages", "prompt"), **options):
        assert counted(post("/v1/completions", model=job, prompt=TEXT)) == (0, 0)


def test_texts_of_embeddings_count(model, job, post):
    with model(VECTORS, most=4):
        assert counted(post("/v1/embeddings", model=job, input=[TEXT, "a dog", "a"])) == (15, None)
        assert counted(post("/v1/embeddings", model=job, input=TEXT)) == (8, None)


def test_token_ids_count_without_a_tokenizer(model, job, post):
    ids = VECTORS.replace('"text"', '"ids"').replace('"str"', '"int64[?]"')
    with model(ids):
        assert counted(post("/v1/embeddings", model=job, input=[[1, 2, 3], [4, 5]])) == (5, None)
