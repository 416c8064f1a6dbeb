"""Limits of HTTP connections: headers, trailers, time and number."""

import json
import socket
import time
from http.client import HTTPResponse

import httpx
import pytest

from tests.support.fixtures.front_end import connect
from tests.support.fixtures.waiting import wait_until

BODY = json.dumps({"instances": [{"x": [1, 2]}]}).encode()
CHUNKED = b"POST /predict HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


def test_a_client_that_never_ends_its_headers_is_hung_up_on(serve):
    with connect(serve("--headerTimeout=0.2").url) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n")
        assert connection.recv(100) == b""


def test_a_client_that_says_nothing_is_hung_up_on(serve):
    with connect(serve("--headerTimeout=0.2").url) as connection:
        assert connection.recv(100) == b""


@pytest.mark.parametrize(
    ("request_", "status", "more"),
    [
        (b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n", b"200", b"GET /"),
        # It is answered before its body has come.
        (b"POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 10000\r\n\r\n", b"404", b"123"),
    ],
)
def test_what_follows_an_answer_has_no_more_time_than_headers(serve, request_, status, more):
    with connect(serve("--headerTimeout=0.5").url) as connection:
        connection.sendall(request_)
        assert connection.recv(1000).startswith(b"HTTP/1.1 " + status)
        connection.sendall(more)
        assert connection.recv(1000) == b""


def test_endless_headers_are_refused(serve):
    with connect(serve("--maxHeaderBytes=2000").url) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nx: " + b"y" * 3000)
        answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 431")
    assert b'"HEADERS_TOO_LARGE"' in answer


@pytest.mark.parametrize("endless", [b"0\r\nx: ", b"0\r\nx: y\r\nx: ", b"1;x="])
def test_endless_trailers_and_chunk_extensions_are_refused(serve, endless):
    with connect(serve("--maxHeaderBytes=2000").url) as connection:
        connection.sendall(CHUNKED + endless)
        for _ in range(3):
            time.sleep(0.05)
            connection.sendall(b"y" * 900)
        assert connection.recv(1000).startswith(b"HTTP/1.1 431")


@pytest.mark.usefixtures("echo", "vectors")
def test_trailers_are_not_taken_for_headers(serve):
    with connect(serve().url) as connection:
        connection.sendall(CHUNKED + b"%x\r\n%b\r\n0\r\nx-timeout-ms: soon\r\n\r\n" % (len(BODY), BODY))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_the_rest_of_a_body_does_not_count_as_the_head_behind_it(serve):
    with connect(serve("--maxHeaderBytes=2000").url) as connection:
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nhost: a\r\ncontent-length: 3000\r\n\r\n")
        with HTTPResponse(connection) as response:
            response.begin()
            assert response.status == 404
            response.read()
        connection.sendall(b"x" * 3000 + b"GET /health/live HTT")
        time.sleep(0.05)
        connection.sendall(b"P/1.1\r\nhost: a\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_large_headers_are_refused_also_if_they_come_at_once(serve):
    url = serve("--maxHeaderBytes=2000").url
    assert httpx.get(url, headers={"x-short": "a" * 1500}).status_code == 200
    refused = httpx.get(url, headers={"x-long": "a" * 2000})
    assert (refused.status_code, refused.json()["code"]) == (431, "HEADERS_TOO_LARGE")
    assert refused.headers["connection"] == "close"
    assert httpx.get(f"{url}/{'a' * 2000}").status_code == 414


def test_what_is_not_http_is_refused_and_is_no_line_of_the_log(serve, caplog):
    url = serve().url
    # As clients of TLS, and of HTTP/2 without it, begin.
    sent = {b"\x16\x03\x01 not http\r\n\r\n": "MALFORMED_HTTP"}
    sent[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] = "HTTP_VERSION_NOT_SUPPORTED"
    for request, code in sent.items():
        with connect(url) as connection:
            connection.sendall(request)
            assert f'"{code}"' in connection.recv(1000).decode()
    assert httpx.get(f"{url}/health/live").status_code == 200
    assert [record for record in caplog.records if record.levelname != "INFO"] == []


def test_connections_beyond_those_that_are_taken_are_told_so(serve):
    url = serve("--maxConnections=1").url
    with connect(url) as first, connect(url) as second:
        # The first one is none too many.
        first.sendall(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n")
        assert first.recv(1000).startswith(b"HTTP/1.1 200")
        second.sendall(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n")
        answer = second.recv(1000)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b'"OVERLOADED"' in answer
        assert b"retry-after: 1" in answer
        assert second.recv(1000) == b""
        first.sendall(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n")
        assert first.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1\r\n",
        b"HTTP/1.1\r\nhost: a\r\nhost: a\r\n",
        b"HTTP/1.1\r\nhost: a/b\r\n",
        b"HTTP/1.0\r\nhost: a\r\nhost: b\r\n",
        b"HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n",
        b"HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n",
        b"HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 5\r\n",
        b"HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        b"HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, identity\r\n",
        b"HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n",
        b"HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n",
    ],
)
def test_what_a_proxy_may_understand_differently_is_refused(serve, head):
    with connect(serve().url) as connection:
        connection.sendall(b"POST /health/live " + head + b"\r\n0\r\n\r\nGET /health/live HTTP/1.1\r\nhost: a\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(1000), b""))
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") - answer.count(b"not HTTP/1.1") == 1
    assert b'"MALFORMED_HTTP"' in answer
    assert b"connection: close" in answer
    assert b"\r\ndate: " in answer


def test_what_the_standard_has_a_status_for_is_refused_with_it(serve):
    url = serve().url
    for line, fields, status, code in (
        ("GET / HTTP/2.0", "", 505, "HTTP_VERSION_NOT_SUPPORTED"),
        ("PRI * HTTP/2.0", "", 505, "HTTP_VERSION_NOT_SUPPORTED"),
        ("GET / HTTP/0.9", "", 505, "HTTP_VERSION_NOT_SUPPORTED"),
        ("GET / HTTP/3.0", "", 505, "HTTP_VERSION_NOT_SUPPORTED"),
        ("BREW / HTTP/1.1", "", 501, "NOT_SUPPORTED"),
        ("get / HTTP/1.1", "", 501, "NOT_SUPPORTED"),
        ("CONNECT a:80 HTTP/1.1", "", 501, "NOT_SUPPORTED"),
        ("POST /predict HTTP/1.1", "transfer-encoding: gzip, chunked\r\n", 501, "NOT_SUPPORTED"),
        ("GET / HTTP/1.1", "expect: 200-ok\r\n", 417, "EXPECTATION_FAILED"),
        ("GET * HTTP/1.1", "", 400, "MALFORMED_HTTP"),
        ("GET /#a HTTP/1.1", "", 400, "MALFORMED_HTTP"),
        ("GET / HTTP/x", "", 400, "MALFORMED_HTTP"),
    ):
        with connect(url) as connection:
            connection.sendall(f"{line}\r\nhost: a\r\n{fields}\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(1000), b"")).decode()
        assert (answer.startswith(f"HTTP/1.1 {status} "), code in answer) == (True, True), (line, answer)
        assert "connection: close" in answer


def test_a_higher_minor_version_is_answered_as_http_1_1(serve):
    request = b"POST /predict HTTP/1.2\r\nhost: a\r\ncontent-length: 1\r\n\r\n-"
    request += b"GET /health/live HTTP/1.9\r\nhost: a\r\n\r\n"
    with connect(serve().url) as connection:
        # In pieces, and more than one request on the connection.
        for start in range(0, len(request), 7):
            connection.sendall(request[start : start + 7])
        answers = b""
        while answers.count(b"x-request-id") < 2:
            answers += connection.recv(1000)
        connection.sendall(b"GET / HTTP/1.2\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 400"), "as in 1.1, a host is needed"
    assert answers.startswith(b"HTTP/1.1 404")
    assert b"HTTP/1.1 200" in answers


def test_a_question_for_the_whole_server_is_answered_with_its_methods(serve):
    with connect(serve().url) as connection:
        connection.sendall(b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n")
        answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 204")
    assert b"allow: DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT" in answer


def test_a_request_of_http_1_0_needs_no_host(serve):
    with connect(serve().url) as connection:
        connection.sendall(b"GET /health/live HTTP/1.0\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.fixture
def large(serve, job):
    """A front end, and a connection that has asked for an answer of 20 MB, more than the kernel takes for a client."""
    front = serve("--writeTimeout=1")
    with connect(front.url) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        head = json.dumps(
            {
                "inputs": [
                    {
                        "name": "x",
                        "datatype": "FP32",
                        "shape": [1, 5_000_000],
                        "parameters": {"binary_data_size": 20_000_000},
                    }
                ],
                "parameters": {"binary_data_output": True},
            }
        ).encode()
        connection.sendall(
            b"POST /v2/models/%b/infer HTTP/1.1\r\nhost: a\r\ninference-header-content-length: %d\r\n"
            b"content-length: %d\r\n\r\n" % (job.encode(), len(head), len(head) + 20_000_000)
        )
        connection.sendall(head + bytes(20_000_000))
        yield front, connection


@pytest.mark.usefixtures("echo", "vectors")
def test_a_client_that_reads_nothing_is_hung_up_on(large):
    front, connection = large
    assert connection.recv(100).startswith(b"HTTP/1.1 200")
    wait_until(lambda: not front.server.server_state.connections)
    with pytest.raises(ConnectionResetError):
        while connection.recv(1 << 20):
            pass


@pytest.mark.usefixtures("echo", "vectors")
def test_a_client_that_reads_slowly_gets_its_answer(large):
    _, connection = large
    size = len(connection.recv(100))
    for _ in range(15):
        time.sleep(0.2)
        size += len(connection.recv(1 << 18))
    while size < 20_000_000:
        part = connection.recv(1 << 20)
        assert part
        size += len(part)


UPGRADES = [b"h2c", b"websocket", b"TLS/1.0, HTTP/1.1"]
SMUGGLED = b"GET /models HTTP/1.1\r\nhost: a\r\n\r\n"


def asking_for(upgrade, length, coding=b""):
    """The head of a prediction that asks for another protocol, as Java's HttpClient does."""
    size = b"transfer-encoding: chunked" if coding else b"content-length: %d" % length
    head = b"POST /predict HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n%b\r\nHost: a\r\nHTTP2-Settings: AAEA\r\n"
    return head % size + b"Upgrade: %b\r\nUser-Agent: Java-http-client/21\r\n\r\n" % upgrade


@pytest.mark.usefixtures("echo", "vectors")
@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("pieces", [1, 2])
def test_another_protocol_is_not_taken_up_and_the_body_belongs_to_its_request(serve, upgrade, chunked, pieces):
    head = asking_for(upgrade, len(BODY), chunked)
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY) if chunked else BODY
    with connect(serve().url) as connection:
        for _ in range(2):
            if pieces == 1:
                connection.sendall(head + body)
            else:
                connection.sendall(head)
                time.sleep(0.1)
                connection.sendall(body)
            assert b" 200 " in connection.recv(1000)


@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("cut", [0, 30])
def test_a_body_is_never_read_as_a_request(serve, upgrade, cut):
    """Also if the head comes in pieces, so that the header cannot be ignored: then the connection ends."""
    head = asking_for(upgrade, len(SMUGGLED))
    with connect(serve().url) as connection:
        connection.sendall(head[:cut])
        time.sleep(0.1)
        connection.sendall(head[cut:])
        time.sleep(0.1)
        connection.sendall(SMUGGLED)
        answers = b""
        while piece := connection.recv(4096):
            answers += piece
            if not cut:
                break
    assert answers.count(b"HTTP/1.1 ") == 1
    assert (b" 400 " if cut else b" 404 ") in answers
    assert b'"models"' not in answers


def test_a_request_for_a_tunnel_is_refused(serve):
    with connect(serve().url) as connection:
        connection.sendall(b"CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\n" + SMUGGLED)
        answer = connection.recv(4096)
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b" 501 " in answer
        assert connection.recv(100) == b""
