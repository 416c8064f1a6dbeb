"""Compressed bodies of requests and responses."""

import gzip
import json
import zlib

import httpx
import numpy as np
import pytest

from cluster_serving.frontend.server.http.compression import decompressed
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from tests.support.fixtures.front_end import connect
from tests.support.fixtures.waiting import wait_until

UNPACKED = {"gzip": gzip.decompress, "deflate": zlib.decompress, None: bytes}
X = list(range(1000))


def undone(body, encoding, max_bytes):
    steps = [*decompressed(body, encoding, max_bytes)]
    assert sum(read for read, _ in steps) == len(body)
    return b"".join(part for _, part in steps)


def test_compressed_bodies_are_bounded():
    data = b"0" * 10_000
    assert undone(gzip.compress(data), "gzip", 10_000) == data
    assert undone(zlib.compress(data), "deflate", 10_000) == data
    assert undone(gzip.compress(b""), "gzip", 10_000) == b""
    for large in (np.random.default_rng(0).bytes(3 << 20) + bytes(5 << 20), bytes(1 << 20), bytes(2 << 20)):
        assert undone(gzip.compress(large), "gzip", len(large)) == large
    with pytest.raises(RequestTooLarge, match="9999"):
        undone(gzip.compress(data), "gzip", 9_999)


@pytest.mark.parametrize(
    ("body", "encoding", "message"),
    [
        (lambda: gzip.compress(b"0" * 10_000)[:-9], "gzip", "ends early"),
        (lambda: b"", "gzip", "ends early"),
        (lambda: b"0" * 10_000, "gzip", "not gzip"),
        (lambda: gzip.compress(b"a") + gzip.compress(b"bc"), "gzip", "not gzip: 22 bytes follow its end"),
        (lambda: zlib.compress(b"a") + b"junk", "deflate", "not deflate: 4 bytes follow its end"),
    ],
)
def test_what_is_wrong_with_a_compressed_body_is_said(body, encoding, message):
    with pytest.raises(InvalidInput, match=message):
        undone(body(), encoding, 10_000)


@pytest.mark.usefixtures("vectors", "echo")
def test_what_a_compressed_body_becomes_counts_as_it_grows(serve):
    body = gzip.compress(json.dumps({"instances": [{"x": [0.5] * 3_000_000}]}).encode())
    front = serve("--maxBodyMemory=12000000", "--maxBodyBytes=12000000")
    with httpx.Client(base_url=front.url) as client:
        head = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 6000000\r\n\r\n"
        with connect(str(client.base_url)) as slow:
            slow.sendall(head + bytes(5_000_000))
            wait_until(lambda: front.front.admission.bodies.used > 4_000_000)
            answer = client.post("/predict", content=body, headers={"content-encoding": "gzip"}, timeout=60)
            assert (answer.status_code, answer.json()["code"]) == (503, "OVERLOADED")


@pytest.mark.usefixtures("vectors", "echo")
def test_compressed_requests_are_answered_up_to_the_size_of_a_body(serve):
    with httpx.Client(base_url=serve("--maxBodyBytes=10000").url, timeout=60) as client:
        for size, status in ((100, 200), (10_000, 413)):
            body = json.dumps({"instances": [{"x": [0.5] * size}]}).encode()
            for coding, compress in (("gzip", gzip.compress), ("deflate", zlib.compress)):
                answer = client.post("/predict", content=compress(body), headers={"content-encoding": coding})
                assert answer.status_code == status
        refused = client.post("/predict", content=body[:10], headers={"content-encoding": "gzip"})
        assert (refused.status_code, "not gzip" in refused.json()["error"]) == (400, True)
        # Two headers of one name are a list.
        for codings in (["br"], ["gzip", "gzip"], ["identity", "br"]):
            headers = [("content-encoding", coding) for coding in codings]
            refused = client.post("/predict", content=compress(body), headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (415, "UNSUPPORTED_ENCODING")
            assert refused.headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize(
    ("accepted", "values", "coding"),
    [
        ("gzip", [1], "gzip"),
        ("deflate", [1], "deflate"),
        ("gzip, deflate, br", X, "gzip"),
        ("gzip, deflate, br", [1], None),
        ("deflate;q=0.9, gzip;q=0.1", X, "deflate"),
        ("gzip;q=0, identity", X, None),
        ("gzip;q=0.2, identity;q=0.9", X, None),
        ("identity, gzip", X, "gzip"),
        ("*", X, None),
        ("gzip;q=0, *;q=0.5, identity;q=0", [1], "deflate"),
        ("identity;q=0, *", [1], "gzip"),
        ("gzip;q=nan", X, None),
        ("br;q=x", X, None),
        ("", X, None),
    ],
)
@pytest.mark.parametrize("path", ["/models/{}/predict", "/v1/models/{}:predict"])
def test_answers_are_compressed_if_that_is_asked_for(ask, job, path, accepted, values, coding):
    body = {"instances": [{"x": values}]}
    with ask.stream("POST", path.format(job), json=body, headers={"accept-encoding": accepted}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers.get("content-encoding") == coding
    assert str(float(values[-1])) in UNPACKED[coding](raw).decode()
    refused = ask.post(path.format(job), content=b"{", headers={"accept-encoding": accepted})
    assert (refused.status_code, "content-encoding" in refused.headers) == (400, False)
