"""Errors have the form of the API at the path of the request, whatever refuses the request."""

import httpx
import openai
import pytest

from tests.support.fixtures.front_end import connect


def openai_error(answer, status, code):
    """Check an error in OpenAI's form; return its message."""
    assert answer.status_code == status
    (error,) = answer.json().values()
    kind = "invalid_request_error" if status < 500 else "server_error"
    assert {**error, "message": ""} == {"message": "", "type": kind, "param": None, "code": code}
    return error["message"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/audio/speech", "/v1/models"])
def test_the_middleware_refuses_in_openais_form(serve, report, keys, path):
    report(("x", "float32", (None, 2)))
    url = serve(f"--apiKeysFile={keys[0]}", "--tokenBucketEnabled=true", "--tokensPerSecond=1").url
    refused = httpx.post(url + path, json={})
    openai_error(refused, 401, "UNAUTHENTICATED")
    assert refused.headers["www-authenticate"] == "Bearer"
    headers = {"authorization": f"Bearer {keys[1]}"}
    answers = [httpx.post(url + path, json={}, headers=headers) for _ in range(4)]
    openai_error(answers[-1], 429, "RATE_LIMITED")
    assert int(answers[-1].headers["retry-after"]) >= 1
    with (
        openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="the API key is unknown") as raised,
    ):
        client.models.list()
    assert raised.value.code == "UNAUTHENTICATED"


def test_paths_and_methods_that_do_not_exist_are_refused_in_the_form_of_their_api(ask, job):
    openai_error(ask.post("/v1/responses", json={}), 404, "NOT_FOUND")
    openai_error(ask.get("/v1/files/unknown"), 404, "FILE_NOT_FOUND")
    for path, allowed in {"/v1/files": "GET, HEAD, POST", "/v1/files/x": "DELETE, GET, HEAD"}.items():
        answer = ask.put(path)
        assert f"but {allowed}" in openai_error(answer, 405, "METHOD_NOT_ALLOWED")
        assert answer.headers["allow"] == allowed
    openai_error(ask.put(f"/v1/models/{job}"), 405, "METHOD_NOT_ALLOWED")
    for path in ("/v1/requests/x", f"/v1/models/{job}/versions/1", "/v2/models/x", "/models"):
        assert isinstance(ask.put(path).json()["error"], str)
    assert ask.put("/v1/requests/x").headers["allow"] == "DELETE, GET, HEAD"


def test_what_is_no_request_is_refused_in_the_form_of_its_path(ask):
    long = {"x-long": "x" * 100_000}
    openai_error(ask.post("/v1/completions", json={}, headers=long), 431, "HEADERS_TOO_LARGE")
    assert ask.post("/predict", json={}, headers=long).json()["code"] == "HEADERS_TOO_LARGE"
    for path, form in {"/v1/embeddings": b'{"error":{"message"', "/predict": b'{"error":"'}.items():
        with connect(str(ask.base_url).rstrip("/")) as connection:
            connection.sendall(f"POST {path} HTTP/1.1\r\n\r\n".encode())
            assert form in connection.recv(4096)


def test_openais_client_finds_a_model(ask, job):
    with openai.OpenAI(base_url=str(ask.base_url.join("/v1")), api_key="none", max_retries=0) as client:
        found = client.models.retrieve(job)
        assert (found.id, found.object, found.owned_by) == (job, "model", "cluster-serving")
        with pytest.raises(openai.NotFoundError, match="there is no model 'another'") as raised:
            client.models.retrieve("another")
        assert raised.value.code == "MODEL_NOT_FOUND"


@pytest.mark.parametrize(
    ("method", "verb", "status", "told"),
    [
        ("POST", "explain", 501, "the verb 'explain' is not supported here; expected 'predict'"),
        ("POST", "classify", 501, "not supported"),
        ("POST", "prdict", 404, "there is no verb 'prdict'; expected 'predict'"),
        ("GET", "predict", 405, "the method GET is not allowed for 'predict', but POST"),
    ],
)
def test_other_verbs_of_version_1_are_refused(ask, job, method, verb, status, told):
    for path in (f"/v1/models/{job}:{verb}", f"/v1/models/{job}/versions/1:{verb}"):
        answer = ask.request(method, path)
        assert (answer.status_code, told in answer.json()["error"]) == (status, True)
        assert answer.headers.get("allow") == ("POST" if status == 405 else None)


def test_a_url_that_is_too_long_is_told_from_headers_that_are(ask):
    for size in (70_000, 200_000):
        for rest in (b" HTTP/1.1\r\nhost: x\r\n\r\n", b""):
            with connect(str(ask.base_url).rstrip("/")) as connection:
                connection.sendall(b"GET /v1/files?after=" + b"a" * size + rest)
                answer = connection.recv(4096)
            assert answer.startswith(b"HTTP/1.1 414 "), answer
            assert b'{"error":{"message":"the address of the request is too long (maxHeaderBytes)"' in answer
