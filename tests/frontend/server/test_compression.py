"""Compressed bodies of requests and responses."""

import gzip
import json
import zlib

import httpx
import pytest

from cluster_serving.frontend.server.compression import decompress
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge

UNPACKED = {"gzip": gzip.decompress, "deflate": zlib.decompress, None: bytes}
X = list(range(1000))


def test_compressed_bodies_are_bounded():
    data = b"0" * 10_000
    assert decompress(gzip.compress(data), "gzip", 10_000) == data
    assert decompress(zlib.compress(data), "deflate", 10_000) == data
    with pytest.raises(RequestTooLarge, match="9999"):
        decompress(gzip.compress(data), "gzip", 9_999)
    with pytest.raises(InvalidInput, match="ends early"):
        decompress(gzip.compress(data)[:-9], "gzip", 10_000)
    with pytest.raises(InvalidInput, match="not gzip"):
        decompress(data, "gzip", 10_000)
    with pytest.raises(InvalidInput, match="br"):
        decompress(data, "br", 10_000)


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


@pytest.mark.parametrize(
    ("accepted", "values", "coding"),
    [
        ("gzip", [1], "gzip"),
        ("deflate", [1], "deflate"),
        ("gzip, deflate, br", X, "gzip"),
        ("gzip, deflate, br", [1], None),
        ("deflate;q=0.9, gzip;q=0.1", X, "deflate"),
        ("gzip;q=0, identity", X, None),
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
