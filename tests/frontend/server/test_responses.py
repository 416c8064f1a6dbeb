"""Limits of bodies: size and time."""

import httpx
import pytest

from tests.support.front_end import connect


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize("content", [b"x" * 2000, iter([b"x" * 500] * 4)])
def test_a_large_body_is_413_whether_its_size_was_declared_or_not(serve, content):
    response = httpx.post(f"{serve('--maxBodyBytes=1000').url}/predict", content=content)
    assert (response.status_code, response.json()["code"]) == (413, "REQUEST_TOO_LARGE")
    assert "maxBodyBytes" in response.json()["error"]


def test_a_client_that_never_ends_its_body_is_answered_408(serve):
    with connect(serve("--bodyTimeout=0.2").url) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n123")
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")
