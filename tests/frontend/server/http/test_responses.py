"""Bodies: limits of size and time, and JSON."""

import json
import math

import httpx
import numpy as np
import pytest

from cluster_serving.frontend.server.http.responses import dumps
from tests.support.fixtures.front_end import connect


def test_documents_that_other_encoders_refuse_are_written():
    content = {"id": 2**70, "text": "\ud800", "numbers": (1, 2.5, math.nan, np.float32(3), np.arange(2), None, True)}
    written = {"id": 2**70, "text": "\ud800", "numbers": [1, 2.5, None, 3.0, [0, 1], None, True]}
    assert json.loads(dumps(content)) == written


@pytest.mark.parametrize("content", [{1: 2**70}, [2**70, np.longdouble(1)], [2**70, {1}]])
def test_what_has_no_form_in_json_is_refused(content):
    with pytest.raises(TypeError, match="no JSON form"):
        dumps(content)


@pytest.mark.usefixtures("vectors")
def test_an_error_quotes_no_more_than_a_part_of_a_large_name(serve):
    answer = httpx.post(f"{serve().url}/predict", json={"instances": [{"x" * 1_000_000: None}]}, timeout=60)
    assert answer.status_code == 400
    assert len(answer.content) < 20_000


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
