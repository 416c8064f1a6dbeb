"""API keys, rates, request ids, access log and cross-origin requests."""

import json
import logging
import subprocess
import sys

import httpx
import pytest

from cluster_serving.frontend.errors import RateLimited, Unauthenticated
from cluster_serving.frontend.server.admission import TokenBucket
from cluster_serving.frontend.server.keys import Keys, KeysError, new_key
from tests.support.waiting import wait_until

BODY = json.dumps({"instances": [{"x": [1, 2]}]})


@pytest.fixture
def vectors(report, echo):
    report(("x", "float32", (None, None)))


@pytest.fixture
def keys(tmp_path):
    key, line = new_key("alice")
    file = tmp_path / "keys"
    file.write_text(f"# of the team\n\n{line}\n")
    return file, key


@pytest.mark.usefixtures("vectors")
@pytest.mark.parametrize("header", ["Authorization: Bearer {}", "authorization: bearer {}", "X-API-Key: {}"])
def test_a_key_is_needed_where_keys_are_configured(serve, keys, header):
    file, key = keys
    url = f"{serve(f'--apiKeysFile={file}').url}/predict"
    name, _, value = header.format(key).partition(": ")
    assert httpx.post(url, content=BODY, headers={name: value}, timeout=30).status_code == 200
    for wrong in ({}, {name: value + "x"}, {name: "\xff"}):
        response = httpx.post(url, content=BODY, headers=[(k.encode(), v.encode("latin1")) for k, v in wrong.items()])
        assert (response.status_code, response.json()["code"]) == (401, "UNAUTHENTICATED")
        assert response.headers["www-authenticate"] == "Bearer"
        assert key not in response.text


def test_probes_need_no_key_and_everything_else_does(serve, keys):
    url = serve(f"--apiKeysFile={keys[0]}").url
    assert httpx.get(f"{url}/health/live").status_code == 200
    for path in ("/models", "/metrics", "/model-secure", "/predict", "/nowhere"):
        assert httpx.get(f"{url}{path}").status_code == 401


def test_a_key_is_made_by_the_command_and_only_its_hash_is_kept(tmp_path):
    command = [sys.executable, "-m", "cluster_serving.frontend.main", "hash-key"]
    done = subprocess.run([*command, "bob"], capture_output=True, text=True, check=True)
    key = done.stderr.split()[-1]
    file = tmp_path / "keys"
    file.write_text(done.stdout)
    assert key not in done.stdout
    assert Keys(file).owner(key) == "bob"
    assert subprocess.run([*command, "a:b"], capture_output=True, check=False).returncode == 1
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2


def test_a_line_that_is_no_hash_is_named_and_not_repeated(tmp_path):
    file = tmp_path / "keys"
    file.write_text("alice:my-secret-key\n")
    with pytest.raises(KeysError, match="line 1") as caught:
        Keys(file)
    assert "my-secret-key" not in str(caught.value)
    with pytest.raises(KeysError, match="cannot be read"):
        Keys(tmp_path / "none")


def test_a_file_that_is_broken_while_in_use_leaves_the_keys_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr("cluster_serving.frontend.server.keys._RECHECK", -1)
    file, (key, line), (other, added) = tmp_path / "keys", new_key("alice"), new_key("bob")
    file.write_text(line)
    keys = Keys(file)
    file.write_text(f"{line}\n{added[:20]}")
    assert keys.owner(key) == "alice"
    file.unlink()
    assert keys.owner(key) == "alice"
    file.write_text(added)
    assert keys.owner(other) == "bob"
    with pytest.raises(Unauthenticated):
        keys.owner(key)


@pytest.mark.usefixtures("vectors")
def test_more_than_the_rate_is_429_and_says_when_to_come_back(serve):
    url = serve("--tokenBucketEnabled=true", "--tokensPerSecond=0.01", "--tokenAcquireTimeout=10").url
    assert httpx.post(f"{url}/predict", content=BODY, timeout=30).status_code == 200
    refused = httpx.post(f"{url}/predict", content=BODY)
    assert (refused.status_code, refused.json()["code"]) == (429, "RATE_LIMITED")
    assert 90 <= int(refused.headers["retry-after"]) <= 100
    assert httpx.get(f"{url}/models").status_code == 200


def test_a_bucket_holds_a_second_of_tokens_and_makes_the_next_wait():
    now = 0.0
    bucket = TokenBucket(10, 0.2, lambda: now)
    assert [bucket.take() for _ in range(10)] == [0] * 10
    assert [round(bucket.take(), 6) for _ in range(2)] == [0.1, 0.2]
    with pytest.raises(RateLimited) as caught:
        bucket.take()
    assert round(caught.value.retry_after, 6) == 0.3
    now = 0.5
    assert [bucket.take() for _ in range(3)] == [0] * 3


@pytest.mark.usefixtures("vectors")
def test_a_line_per_request_without_payload_query_or_key(serve, keys, caplog):
    file, key = keys
    url = serve("--accessLog=true", f"--apiKeysFile={file}").url
    with caplog.at_level(logging.INFO, "cluster_serving.access"):
        headers = {"x-api-key": key, "x-request-id": "mine-1"}
        response = httpx.post(f"{url}/predict?secret=1", content=BODY, headers=headers, timeout=30)
        assert response.headers["x-request-id"] == "mine-1"
        odd = httpx.get(f"{url}/a%0Ab", headers={"x-api-key": key, "x-request-id": "not valid"})
        assert odd.headers["x-request-id"] != "not valid"
        wait_until(lambda: len(caplog.messages) == 2)
    first, second = caplog.messages
    assert first.startswith("POST /predict 200 ")
    assert first.endswith("id=mine-1 client=alice")
    assert second.startswith("GET /a%0Ab 404 ")
    assert "secret" not in first
    assert key not in first


def test_pages_of_other_origins_are_let_in_only_if_listed(serve):
    ask = {"origin": "https://a.example", "access-control-request-method": "POST"}
    closed = httpx.options(f"{serve().url}/predict", headers=ask)
    assert "access-control-allow-origin" not in closed.headers
    opened = httpx.options(f"{serve('--corsOrigins=https://a.example').url}/predict", headers=ask)
    assert opened.headers["access-control-allow-origin"] == "https://a.example"
