"""Each field of each API document, wrong in every way, is refused with its name: cases that follow from them."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product

import httpx
import pytest

from tests.support.fixtures.generating import CALLER, EMBEDDER, generating
from tests.support.payloads import derived

MIXED = """
    class Handler:
        inputs = {"x": "float32[2]", "count": "int8", "flag": "bool[2]", "text": "str", "tags": "str[?]"}
        outputs = {"y": "float32[2]"}

        def predict(self, batch):
            return {"y": batch["x"]}
    """

MODELS = {"mixed": MIXED, "caller": CALLER, "embedder": EMBEDDER}

ROW = {"x": [1.0, 2.0], "count": 1, "flag": [True, False], "text": "a", "tags": ["b"]}

COMMON = {"n": 1, "stream": False, "stream_options": {"include_usage": True}, "max_tokens": 5, "temperature": 1}

BODIES = {
    "/predict": {"instances": [ROW]},
    "/models/{name}/predict": {"instances": ["a"]},
    "/v1/requests": {"instances": [ROW], "model": "mixed", "version": "7", "stream": False},
    "/v1/completions": {"model": "embedder", "prompt": "a", **COMMON},
    "/v1/chat/completions": {
        "model": "caller",
        "messages": [{"role": "user", "content": [{"type": "text"}], "name": "a", "tool_calls": [{}]}],
        **COMMON,
    },
    "/v1/embeddings": {
        "model": "embedder",
        "input": ["a"],
        "encoding_format": "float",
        "dimensions": 3,
        "user": "a",
    },
    "/v1/batches": {
        "endpoint": "/v1/embeddings",
        "completion_window": "24h",
        "metadata": {"a": "b"},
        "output_expires_after": {"anchor": "created_at", "seconds": 3600},
    },
    "/v2/repository/index": {"ready": True},
    "/v2/models/{name}/infer": {
        "id": "1",
        "model_name": "embedder",
        "parameters": {},
        "inputs": [
            {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a"], "parameters": {}},
        ],
        "outputs": [{"name": "embedding", "parameters": {}}],
    },
    "/v1/models/{name}:predict": {"instances": ["a"], "signature_name": "serving_default"},
    "/ui/models/{name}/requeue": {"ids": ["1-0"]},
}
"""A right body for each path of the general document; those of a model have their own examples."""


@pytest.fixture
def client(redis_server, serve, tmp_path):
    with ExitStack() as stack:
        for name, code in MODELS.items():
            (tmp_path / name).mkdir()
            stack.enter_context(generating(redis_server.port, name, tmp_path / name, code))
        front = serve(f"--models={','.join(MODELS)}", "--redisInputQueue=mixed", "--requiredModels=mixed")
        yield stack.enter_context(httpx.Client(base_url=front.url, timeout=30))


def requests(document, examples):
    """Method, path and case of all wrong requests of a document."""
    for path, methods in document["paths"].items():
        # Paths with a version do as those without; what an unknown id names is missed before parameters are read.
        for method, operation in methods.items() if "/versions/" not in path and "{id}" not in path else ():
            example = examples(path, operation) if "requestBody" in operation else None
            for case in derived.cases(document, operation, example):
                yield method, path.replace("{name}", "embedder"), case


def test_ids_in_paths_that_name_nothing_are_refused(client):
    known = {"name": "embedder", "id": "embedder", "version": "7"}
    asked = [
        (method, wrong, b"" if path.startswith("/v2/repository") else json.dumps(BODIES.get(path, {})).encode())
        for path, methods in client.get("/openapi.json").json()["paths"].items()
        for method, wrong in product(methods, derived.paths(path, known))
    ]

    def fault(case):
        method, path, body = case
        answer = client.request(method, path, content=body if method == "post" else None)
        if answer.status_code == 404 and '"code"' in answer.text and len(answer.content) < 700:
            return ""
        return f"{method} {path[:80]}: {answer.status_code} {answer.text[:300]}"

    assert len(asked) > 200
    # An unknown model is looked for again before the refusal.
    with ThreadPoolExecutor(8) as threads:
        assert not [*filter(None, threads.map(fault, asked))]


def check(client, document, examples, inputs=()):
    """Send all wrong requests of a document, and return their number; each has to be refused with the field's name."""
    wrong, faults = [*requests(document, examples)], []
    for method, path, case in wrong:
        answer = client.request(method, path, **case.sent)
        named = not case.names or any(name in answer.text for name in (*case.names, *inputs))
        if answer.status_code not in (400, 404, 413, 415) or "code" not in answer.text or not named:
            faults.append(f"{method} {path}: {case.what}: {answer.status_code} {answer.text[:200]}")
    assert not faults, "\n".join(faults)
    return len(wrong)


def check_examples(client, document):
    """Send the example of each path; return their number."""
    sent = 0
    for path, methods in document["paths"].items():
        content = methods.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" in content:
            for parameter in methods["post"]["parameters"]:
                path = path.replace(f"{{{parameter.get('name')}}}", parameter.get("example", ""))
            answer = client.post(path, json=content["example"])
            assert answer.is_success, f"{path}: {answer.text}"
            sent += 1
    return sent


def test_examples_of_the_documents_are_answered_and_wrong_values_that_follow_are_refused_by_name(client):
    general = client.get("/openapi.json").json()
    assert check_examples(client, general) == 10
    line = {"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": {"model": "embedder", "input": "a"}}
    sent = {"file": ("a.jsonl", json.dumps(line).encode())}
    file = client.post("/v1/files", files=sent, data={"purpose": "batch"}).json()["id"]
    bodies = {**BODIES, "/v1/batches": {**BODIES["/v1/batches"], "input_file_id": file}}
    assert check(client, general, lambda path, operation: bodies.get(path)) > 500
    for model, inputs in (("mixed", [*ROW]), ("caller", ["messages"])):
        document = client.get(f"/models/{model}/openapi.json").json()

        def example(path, operation, document=document):
            name = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            return document["components"]["schemas"][name]["example"]

        assert check(client, document, example, inputs) > 100
