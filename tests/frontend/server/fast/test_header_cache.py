"""Heads that were parsed before mean the same again, and whatever else is sent is parsed."""

import json

import pytest

from cluster_serving.frontend.server.admission.keys import new_key
from cluster_serving.frontend.server.fast import header_cache
from cluster_serving.frontend.server.fast.header_cache import HeaderCache
from tests.support.fixtures.front_end import connect

PLAIN = (b"host: a", b"content-length: 2")


def request(*fields, line=b"POST /predict HTTP/1.1", version="1.1"):
    """Return the bytes of a request, and its scope as uvicorn makes it."""
    head = b"\r\n".join((line, *fields, b"", b""))
    pairs = [tuple(field.split(b": ", 1)) for field in fields if b": " in field]
    return head + b"{}", {"http_version": version, "headers": [(name.lower(), value) for name, value in pairs]}


def remembered(data, scope):
    known = HeaderCache()
    known.remember(data, scope)
    return known.find(data)


def test_a_head_is_found_by_its_bytes_alone():
    data, scope = request(*PLAIN, b"x-a: 1", b"X-A: 2")
    known = HeaderCache()
    known.remember(data, {**scope, "path": "/predict"})
    found = known.find(data[:-2] + b"[]")
    assert (found.size, found.length, found.scope["path"]) == (len(data) - 2, 2, "/predict")
    assert header_cache.by_name(found.scope) == {b"host": b"a", b"content-length": b"2", b"x-a": b"1, 2"}
    assert known.find(data.replace(b"x-a: 1", b"x-a: 3")) is None
    assert known.find(data[: data.index(b"\r\n\r\n")]) is None
    assert known.find(b"") is None


@pytest.mark.parametrize(
    "fields",
    [
        (b"host: a",),
        (b"host: a", b"content-length: +2"),
        (b"host: a", b"transfer-encoding: chunked"),
        (*PLAIN, b"expect: 100-continue"),
        (*PLAIN, b"upgrade: h2c"),
        (*PLAIN, b"connection: close"),
        # A parser may join the lines, or see others.
        (*PLAIN, b" folded"),
        (*PLAIN, b"x: a\nb"),
        (*PLAIN, b"x: " + b"a" * header_cache._LARGEST),
    ],
)
def test_a_head_of_another_form_is_not_remembered(fields):
    assert remembered(*request(*PLAIN)) is not None
    assert remembered(*request(*fields)) is None


def test_other_methods_and_versions_are_not_remembered():
    assert remembered(*request(*PLAIN, line=b"PUT /predict HTTP/1.1")) is None
    assert remembered(*request(*PLAIN, line=b"\r\n\r\nPOST /predict HTTP/1.1")) is None
    assert remembered(*request(*PLAIN, line=b"POST /predict HTTP/1.0", version="1.0")) is None


def test_the_oldest_heads_are_forgotten(monkeypatch):
    monkeypatch.setattr(header_cache, "_MOST", 2)
    known = HeaderCache()
    sent = [request(*PLAIN, b"x: %d" % number) for number in range(3)]
    for data, scope in sent:
        known.remember(data, scope)
    assert [known.find(data) is not None for data, _ in sent] == [False, True, True]


def text(value, *lines, path="/predict"):
    body = json.dumps({"instances": [{"x": [value]}]}).encode()
    fields = "\r\n".join((f"POST {path} HTTP/1.1", "host: a", f"content-length: {len(body)}", *lines, "", ""))
    return fields.encode() + body


def answers(connection, count):
    received = b""
    while received.count(b"HTTP/1.1 ") < count or not received.endswith((b"]}", b'"}')):
        part = connection.recv(1 << 16)
        assert part, received
        received += part
    return [json.loads(part.rpartition(b"\r\n\r\n")[2]) for part in received.split(b"HTTP/1.1 ")[1:]]


def values(connection, count):
    return [answer["predictions"][0]["value"][0] for answer in answers(connection, count)]


@pytest.fixture
def url(serve, report, echo):
    report(("x", "float32", (None, None)))
    return serve().url


def test_each_request_with_a_known_head_is_answered_by_its_own_body(url):
    for start in range(10, 40, 10):
        with connect(url) as connection:
            for value in range(start, start + 5):
                connection.sendall(text(value))
                assert values(connection, 1) == [value]


@pytest.mark.parametrize("cut", [1, 40, -12, -1])
def test_a_known_head_may_arrive_in_any_parts(url, cut):
    with connect(url) as connection:
        for value in (10, 11, 12):
            connection.sendall(text(value)[:cut])
            connection.sendall(text(value)[cut:])
            assert values(connection, 1) == [value]
            connection.sendall(text(value + 50))
            assert values(connection, 1) == [value + 50]


def test_requests_with_known_heads_may_follow_each_other_at_once(url):
    with connect(url) as connection:
        connection.sendall(text(10))
        assert values(connection, 1) == [10]
        connection.sendall(text(11))
        connection.sendall(text(12) + text(13))
        connection.sendall(text(14))
        assert values(connection, 4) == [11, 12, 13, 14]


def test_a_known_head_may_be_followed_by_what_is_not_http(url):
    with connect(url) as connection:
        connection.sendall(text(10))
        assert values(connection, 1) == [10]
        connection.sendall(text(11))
        assert values(connection, 1) == [11]
        connection.sendall(b"what?\r\n\r\n")
        assert answers(connection, 1)[0]["code"] == "MALFORMED_HTTP"


def test_a_known_head_is_refused_by_limits_that_it_meets_now(serve, report, echo):
    report(("x", "float32", (None, None)))
    url = serve("--maxConnections=1").url
    with connect(url) as first:
        for value in (10, 11):
            first.sendall(text(value))
            assert values(first, 1) == [value]
        with connect(url) as second:
            second.sendall(text(12))
            assert answers(second, 1)[0]["code"] == "OVERLOADED"


def test_the_key_of_a_known_head_is_checked_each_time(serve, report, echo, tmp_path):
    report(("x", "float32", (None, None)))
    key, line = new_key("me")
    (tmp_path / "keys").write_text(line + "\n")
    with connect(serve(f"--apiKeysFile={tmp_path / 'keys'}").url) as connection:
        for _ in range(2):
            connection.sendall(text(10, f"x-api-key: {key}"))
            assert values(connection, 1) == [10]
            connection.sendall(text(10))
            assert answers(connection, 1)[0]["code"] == "UNAUTHENTICATED"
