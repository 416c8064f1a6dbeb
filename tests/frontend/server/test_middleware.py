"""The access log, and request ids."""

import json
import logging

import httpx
import pytest

from tests.support.fixtures.waiting import wait_until

BODY = json.dumps({"instances": [{"x": [1, 2]}]})


def lines(caplog):
    """The lines of the access log; other threads of this process may log, too."""
    return [record.getMessage() for record in caplog.records if record.name == "cluster_serving.access"]


@pytest.mark.usefixtures("echo", "vectors")
def test_a_line_per_request_without_payload_query_or_key(serve, keys, caplog):
    file, key = keys
    url = serve("--accessLog=true", f"--apiKeysFile={file}").url
    with caplog.at_level(logging.INFO, "cluster_serving.access"):
        headers = {"x-api-key": key, "x-request-id": "mine-1"}
        response = httpx.post(f"{url}/predict?responseFormat=json", content=BODY, headers=headers, timeout=30)
        assert response.headers["x-request-id"] == "mine-1"
        odd = httpx.get(f"{url}/a%0Ab", headers={"x-api-key": key, "x-request-id": "not valid"})
        assert odd.headers["x-request-id"] != "not valid"
        wait_until(lambda: len(lines(caplog)) == 2)
    first, second = lines(caplog)
    assert first.startswith("POST /predict 200 ")
    assert first.endswith("id=mine-1 client=alice")
    assert second.startswith("GET /a%0Ab 404 ")
    assert "responseFormat" not in first
    assert key not in first


@pytest.mark.usefixtures("echo", "vectors")
def test_a_request_that_is_refused_for_its_rate_is_logged_with_its_client(serve, keys, caplog):
    file, key = keys
    limit = ("--tokenBucketEnabled=true", "--tokensPerSecond=0.01")
    url = serve("--accessLog=true", f"--apiKeysFile={file}", *limit).url
    with caplog.at_level(logging.INFO, "cluster_serving.access"):
        for _ in range(2):
            httpx.post(f"{url}/predict", content=BODY, headers={"x-api-key": key}, timeout=30)
        wait_until(lambda: len(lines(caplog)) == 2)
    refused = lines(caplog)[1]
    assert refused.startswith("POST /predict 429 ")
    assert refused.endswith("client=alice")


@pytest.mark.usefixtures("echo", "vectors")
def test_a_refused_request_counts_for_its_api(serve, keys, job):
    file, key = keys
    url = serve(f"--apiKeysFile={file}").url
    paths = {
        "/predict": "original",
        f"/v1/models/{job}:predict": "kserve_v1",
        f"/v2/models/{job}/infer": "v2",
        "/v1/requests": "v1",
        "/v1/completions": "openai",
        "/nowhere": "other",
    }
    for path in paths:
        assert httpx.post(f"{url}{path}", content=BODY).status_code == 401
    text = httpx.get(f"{url}/metrics", headers={"x-api-key": key, "accept": "text/plain"}).text
    counts = [line for line in text.splitlines() if "http_requests_total{" in line and 'status="401"' in line]
    for name in paths.values():
        assert (
            f'cluster_serving_http_requests_total{{model="",protocol="{name}",status="401",version=""}} 1.0' in counts
        )


def test_answers_that_change_are_not_kept_by_caches(serve, keys):
    file, key = keys
    with httpx.Client(base_url=serve(f"--apiKeysFile={file}").url) as client:
        for path in ("/models", "/health/ready", "/v2/models/later/ready", "/nothing", "/metrics", "/v1/files"):
            for headers in ({}, {"x-api-key": key}):
                for method in ("GET", "HEAD"):
                    answer = client.request(method, path, headers=headers)
                    assert answer.headers["cache-control"] == "no-store", (method, path, answer)
        assert "cache-control" not in client.post("/predict", headers={"x-api-key": key}).headers
