"""Clients of HTTP/1.0, such as ab."""

import json

import pytest

from tests.support.fixtures.front_end import connect


@pytest.fixture
def connection(ask):
    with connect(str(ask.base_url).rstrip("/")) as connection:
        yield connection


def exchange(connection, method, path, body=b"", headers=b""):
    """Send a request; return the head and the body of the answer, which is framed by its length or the end."""
    head = f"{method} {path} HTTP/1.0\r\ncontent-length: {len(body)}\r\n".encode()
    connection.sendall(head + headers + b"\r\n" + body)
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(4096)
    head, _, body = data.partition(b"\r\n\r\n")
    lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    length = lines.get(b"content-length")
    while (length is None or len(body) < int(length)) and (part := connection.recv(4096)):
        body += part
    return lines, body


BODY = b'{"instances": [{"x": [1.0]}]}'


def test_a_connection_stays_open_if_its_client_asks_for_that(connection):
    for method, path, body in (("POST", "/predict", BODY), ("GET", "/health/live", b""), ("POST", "/predict", BODY)):
        headers, answer = exchange(connection, method, path, body, b"Connection: Keep-Alive\r\n")
        assert headers[b"connection"] == b"keep-alive"
        assert json.loads(answer) in ({"live": True}, {"predictions": [{"value": [1.0]}]})
    headers, _ = exchange(connection, "POST", "/predict", BODY)
    assert headers[b"connection"] == b"close"
    assert connection.recv(1) == b""


def test_the_end_of_a_stream_is_that_of_the_connection(ask, connection):
    made = ask.post("/v1/requests", json={"instances": [{"x": [1.0]}]}).json()["id"]
    headers, events = exchange(connection, "GET", f"/v1/requests/{made}/events", b"", b"Connection: keep-alive\r\n")
    assert headers.keys().isdisjoint({b"transfer-encoding", b"content-length"})
    assert headers[b"connection"] == b"close"
    assert events.startswith(b"event: prediction\n")
    assert events.rstrip().endswith(b"}")
