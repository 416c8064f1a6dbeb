"""Requests for predictions pass Starlette by, and get the same answers."""

import json

import httpx
import pytest

from cluster_serving.frontend.api import json_text
from tests.support.fixtures.front_end import connect

GOOD = {"instances": [{"x": [1, 2]}]}
BAD = {"instances": [{"x": "no image"}]}
CHANGING = ("date", "x-request-id", "access-control-expose-headers", "vary", "access-control-allow-origin")


def kept(answer):
    return {name: value for name, value in answer.headers.items() if name not in CHANGING}


def head(body, *lines):
    return "\r\n".join(("POST /predict HTTP/1.1", "host: a", f"content-length: {len(body)}", *lines, "", "")).encode()


@pytest.fixture
def urls(serve, report, echo):
    """Two front ends, of which the second sends all answers in the way of ASGI, through the middleware of CORS."""
    report(("x", "float32", (None, None)))
    return serve().url, serve("--corsOrigins=http://page").url


@pytest.mark.parametrize("path", ["/predict", "/bigdl/predict", "/models/none/predict", "/predict?responseFormat=x"])
@pytest.mark.parametrize("content", [GOOD, BAD, {}, {"instances": [{"x": list(range(60_000))}]}])
def test_an_answer_is_that_of_starlette(urls, path, content):
    headers = {"origin": "http://page"}
    direct, other = (httpx.post(f"{url}{path}", json=content, headers=headers, timeout=60) for url in urls)
    assert (direct.status_code, direct.content, kept(direct)) == (other.status_code, other.content, kept(other))
    assert other.headers["access-control-allow-origin"] == "http://page"
    assert direct.headers["x-request-id"]


def test_other_methods_and_paths_are_answered_by_starlette(urls):
    assert httpx.put(f"{urls[0]}/predict").status_code == 405
    assert httpx.post(f"{urls[0]}/predicted").status_code == 404


def test_requests_of_one_connection_are_answered_in_order(urls):
    bodies = [json.dumps({"instances": [{"x": [number]}]}).encode() for number in range(5)]
    with connect(urls[0]) as connection:
        connection.sendall(b"".join(head(body) + body for body in bodies))
        received = b""
        while received.count(b"predictions") < 5:
            received += connection.recv(1 << 16)
    places = [received.index(b'{"predictions":[{"value":[%d.0]}]}' % number) for number in range(5)]
    assert places == sorted(places)


def test_a_connection_is_closed_if_its_client_asks_for_that(urls):
    body = json.dumps(GOOD).encode()
    with connect(urls[0]) as connection:
        connection.sendall(head(body, "connection: close") + body)
        received = b""
        while part := connection.recv(1 << 16):
            received += part
    assert b"\r\nconnection: close\r\n" in received
    assert received.endswith(b'{"predictions":[{"value":[1.0,2.0]}]}')


def test_a_body_that_arrives_in_parts_is_read(urls):
    body = json.dumps(GOOD).encode()
    with connect(urls[0]) as connection:
        connection.sendall(head(body, "expect: 100-continue"))
        assert connection.recv(1 << 16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body[:5])
        connection.sendall(body[5:])
        assert connection.recv(1 << 16).endswith(b'{"predictions":[{"value":[1.0,2.0]}]}')


def test_a_mistake_in_the_front_end_is_500_and_in_its_log(urls, monkeypatch, caplog):
    monkeypatch.setattr(json_text, "loads", lambda *body: 1 / 0)
    answer = httpx.post(f"{urls[0]}/predict", json=GOOD)
    assert (answer.status_code, answer.json()["error"]) == (500, "unexpected ZeroDivisionError")
    assert "ZeroDivisionError" in caplog.text
    assert answer.headers["x-request-id"]
