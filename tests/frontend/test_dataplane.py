"""The way of requests that all protocols share, also one that is made up here."""

import json

import httpx
import pytest

from cluster_serving.frontend.dataplane import succeeded
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput
from tests.support.fixtures.echo import failing
from tests.support.fixtures.front_end import connect
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import rows


@pytest.fixture
def ask(serve, vectors, monkeypatch):
    """A client of a front end that has the protocol, and a model of vectors."""
    rows.hang_on(monkeypatch)
    with httpx.Client(base_url=serve().url, timeout=60) as client:
        yield client


def test_a_request_fails_with_its_first_failing_record():
    with pytest.raises(InvalidInput, match="record 1: bad"):
        succeeded([{}, InvalidInput("bad"), InferenceFailed("worse")])
    with pytest.raises(InvalidInput, match="^bad$"):
        succeeded([InvalidInput("bad")])


@pytest.mark.usefixtures("echo")
def test_a_codec_is_all_that_a_protocol_needs(ask, job):
    answer = ask.post(f"/rows/{job}", json={"rows": [[1, 2], [3, 4.5]]})
    assert (answer.status_code, answer.json()) == (200, {"sums": [3, 7.5]})
    assert answer.headers["x-model-version"] == "1"
    # Beside the event loop, in a process of its own.
    assert ask.post(f"/rows/{job}", json={"rows": [[1] * 500_000]}).json() == {"sums": [500_000]}


@pytest.mark.usefixtures("echo")
def test_what_all_protocols_have_it_has(ask, job):
    path = f"/rows/{job}"
    body = json.dumps({"rows": [[1, 2]] * 500})
    packed = ask.post(path, content=body, headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert ask.post("/rows/none", content=body).status_code == 404
    assert ask.post(path, content=b"{").status_code == 400
    assert ask.post(path, json={"rows": [[1]] * 65_537}).status_code == 413
    late = ask.post(path, content=body, headers={"x-timeout-ms": "none"})
    assert "X-Timeout-Ms" in late.json()["error"]
    text = ask.get("/metrics", headers={"accept": "text/plain"}).text
    label = f'model="{job}",protocol="rows",status="200",version="1"'
    assert f"cluster_serving_http_requests_total{{{label}}} 1.0" in text


def test_a_failed_record_fails_the_request(ask, db, job):
    with failing(db, job):
        answer = ask.post(f"/rows/{job}", json={"rows": [[1], [2]]})
    assert answer.status_code == 500
    assert answer.json()["error"].startswith("record 0: ")


def test_a_client_that_goes_away_takes_its_records_with_it(ask, db, job):
    body = b'{"rows":[[1,2],[3]]}'
    with connect(str(ask.base_url).rstrip("/")) as connection:
        head = f"POST /rows/{job} HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        wait_until(lambda: db.xlen(job) == 2)
    wait_until(lambda: db.xlen(job) == 0)
