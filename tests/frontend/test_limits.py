"""What a client may ask of a server before it is refused."""

import asyncio
import json
import socket
import time

import httpx
import pytest

from cluster_serving.frontend.errors import Overloaded
from cluster_serving.frontend.server.admission import ConcurrencyLimit
from tests.support.waiting import wait_until

BODY = json.dumps({"instances": [{"x": [1, 2]}]}).encode()


@pytest.fixture
def vectors(report):
    report(("x", "float32", (None, None)))


def connect(url):
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(30)
    return connection


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize("content", [b"x" * 2000, iter([b"x" * 500] * 4)])
def test_a_large_body_is_413_whether_its_size_was_declared_or_not(serve, content):
    response = httpx.post(f"{serve('--maxBodyBytes=1000').url}/predict", content=content)
    assert (response.status_code, response.json()["code"]) == (413, "REQUEST_TOO_LARGE")
    assert "maxBodyBytes" in response.json()["error"]


@pytest.mark.usefixtures("vectors")
def test_too_many_instances_are_413(serve):
    response = httpx.post(f"{serve('--maxInstances=2').url}/predict", json={"instances": [{"x": [1]}] * 3})
    assert response.status_code == 413
    assert "3 instances; at most 2" in response.json()["error"]


@pytest.mark.usefixtures("echo", "vectors")
def test_more_instances_than_can_be_in_flight_or_wait_are_413(serve, job):
    url = serve("--parallelism=2").url
    for count, status in ((4, 200), (5, 413)):
        instances = {"instances": [{"x": [1]}] * count}
        tensor = {"name": "x", "datatype": "FP32", "shape": [count, 1], "data": [1] * count}
        assert httpx.post(f"{url}/predict", json=instances, timeout=30).status_code == status
        assert httpx.post(f"{url}/v2/models/{job}/infer", json={"inputs": [tensor]}, timeout=30).status_code == status


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"instances":[{"x":[%b[]]}]}' % (b"[]," * (1 << 20)), "1048576 lists"),
        (b'{"instances":[{%b"y":1}]}' % (b'"x":1,' * (1 << 16)), "65536 names"),
        (b'{"instances":[{"x":[%b1]}]}' % (b"1," * ((1 << 22) + 1)), "4194304 values"),
    ],
)
def test_json_that_is_costly_to_read_is_413_and_not_read(serve, job, content, problem):
    url = serve().url
    for path in ("/predict", "/v1/requests", f"/v2/models/{job}/infer", "/v2/repository/index"):
        response = httpx.post(f"{url}{path}", content=content, timeout=30)
        assert (response.status_code, response.json()["code"]) == (413, "REQUEST_TOO_LARGE")
        assert problem in response.json()["error"]


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


def test_a_client_that_never_ends_its_body_is_answered_408(serve):
    with connect(serve("--bodyTimeout=0.2").url) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n123")
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")


def test_endless_headers_are_refused(serve):
    with connect(serve("--maxHeaderBytes=2000").url) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nx: " + b"y" * 3000)
        answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 431")
    assert b'"HEADERS_TOO_LARGE"' in answer


CHUNKED = b"POST /predict HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


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
        assert connection.recv(1000).startswith(b"HTTP/1.1 404")
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
    assert httpx.get(f"{url}/{'a' * 2000}").status_code == 431


def test_what_is_not_http_is_refused_and_the_server_goes_on(serve):
    url = serve().url
    with connect(url) as connection:
        connection.sendall(b"\x16\x03\x01 not http\r\n\r\n")
        answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b'"MALFORMED_HTTP"' in answer
    assert httpx.get(f"{url}/health/live").status_code == 200


def test_connections_beyond_those_that_are_taken_are_told_so(serve):
    url = serve("--maxConnections=1").url
    with connect(url) as first, connect(url) as second:
        second.sendall(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n")
        answer = second.recv(1000)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b'"OVERLOADED"' in answer
        assert b"retry-after: 1" in answer
        assert second.recv(1000) == b""
        first.sendall(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n")
        assert first.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nowhere", 404, "NOT_FOUND"), ("GET", "/predict", 405, "METHOD_NOT_ALLOWED")],
)
def test_other_paths_and_methods_are_refused_like_everything_else(serve, method, path, status, code):
    answer = httpx.request(method, serve().url + path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert path in answer.json()["error"]
    assert ("allow" in answer.headers) is (status == 405)


@pytest.mark.usefixtures("vectors")
def test_a_client_that_goes_away_takes_its_request_with_it(serve, db, job):
    url = serve().url
    with connect(url) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY))
        wait_until(lambda: db.xlen(job) == 1)
    wait_until(lambda: db.xlen(job) == 0)


@pytest.mark.usefixtures("vectors")
def test_further_instances_wait_for_a_place_and_are_refused_if_none_comes(serve, db, job):
    front = serve("--parallelism=1")
    limit = front.front.dispatch.limit
    with connect(front.url) as first, connect(front.url) as second:
        for connection in (first, second):
            connection.sendall(b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY))
        wait_until(lambda: (limit.count, limit.waiting) == (1, 1))
        refused = httpx.post(f"{front.url}/predict", content=BODY, timeout=30)
    assert refused.json()["code"] == "OVERLOADED"
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    wait_until(lambda: db.xlen(job) == 0)


def test_a_place_is_given_to_whoever_waits_for_it():
    async def main():
        limit = ConcurrencyLimit(1)
        async with limit.place(1):
            waiting = asyncio.create_task(held(limit))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert limit.waiting == 1
            with pytest.raises(Overloaded, match="no more are taken"):
                await held(limit)
        assert await waiting == 1
        assert (limit.count, limit.waiting) == (0, 0)

    async def held(limit):
        async with limit.place(5):
            return limit.count

    asyncio.run(main())


@pytest.mark.usefixtures("echo", "vectors")
def test_instances_are_gathered_for_the_window_or_until_it_is_full(serve):
    slow = serve("--timeWindow=300", "--countWindow=1000").url
    assert httpx.post(f"{slow}/predict", content=BODY, timeout=30).elapsed.total_seconds() > 0.25
    # An hour's window that four instances fill.
    full = serve("--timeWindow=3600000", "--countWindow=4").url
    response = httpx.post(f"{full}/predict", json={"instances": [{"x": [n]} for n in range(4)]}, timeout=30)
    assert [prediction["value"] for prediction in response.json()["predictions"]] == [[0], [1], [2], [3]]
