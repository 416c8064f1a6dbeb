"""Requests that are sent again with the same `Idempotency-Key`, because their answer was lost."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from cluster_serving.frontend.api.requests.store import KEPT, RequestStore
from cluster_serving.frontend.server.admission.keys import new_key
from cluster_serving.protocol.errors import QueueFull, RedisUnavailable

BODY = {"instances": [{"x": [1, 2]}, {"x": [3, 4]}]}
OTHER = {"instances": [{"x": [5, 6]}]}

pytestmark = pytest.mark.usefixtures("vectors")


def forget(db):
    for pattern in ("idempotency", "file", "batch"):
        for key in db.scan_iter(f"cluster-serving:{pattern}*"):
            db.delete(key)


@pytest.fixture(autouse=True)
def no_keys_left(db):
    # Fuzzed requests of other tests have keys, too.
    forget(db)
    yield
    forget(db)


def send(url, key, body=BODY, **headers):
    headers["idempotency-key"] = key
    return httpx.post(f"{url}/v1/requests", json=body, headers=headers, timeout=30)


def code(response):
    return response.status_code, response.json()["code"]


def test_a_repetition_at_another_front_end_gets_the_id_of_the_first_and_queues_nothing(serve, db, job):
    first = send(serve().url, "a-key-of-a-client")
    again = send(serve().url, '"a-key-of-a-client"')
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json()
    assert again.headers["location"] == first.headers["location"]
    assert db.xlen(job) == 2
    (kept,) = set(db.scan_iter("cluster-serving:idempotency:*"))
    assert KEPT - 60 < db.ttl(kept) <= KEPT


def test_another_body_is_422_and_another_key_another_request(serve, db, job):
    url = serve().url
    first = send(url, "one")
    assert code(send(url, "one", OTHER)) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert db.xlen(job) == 2
    assert send(url, "two").json()["id"] != first.json()["id"]


def test_many_repetitions_at_once_queue_one_request(serve, db, job):
    urls = [serve().url, serve().url]
    with ThreadPoolExecutor(16) as pool:
        answers = [*pool.map(lambda number: send(urls[number % 2], "same"), range(48))]
    ids = {answer.json()["id"] for answer in answers if answer.status_code == 202}
    assert len(ids) == 1
    assert db.xlen(job) == 2
    assert {answer.status_code for answer in answers} <= {202, 409}


def test_a_repetition_before_the_first_is_queued_is_409(serve, db, job, monkeypatch):
    began, goes_on = threading.Event(), threading.Event()
    submit = RequestStore.submit

    async def slow(*args):
        began.set()
        await asyncio.to_thread(goes_on.wait, 30)
        return await submit(*args)

    monkeypatch.setattr(RequestStore, "submit", slow)
    front, other = serve().url, serve().url
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(send, front, "slow")
        assert began.wait(30)
        refused = send(other, "slow")
        assert code(refused) == (409, "IDEMPOTENCY_KEY_IN_USE")
        assert refused.headers["retry-after"] == "1"
        assert code(send(other, "slow", OTHER)) == (422, "IDEMPOTENCY_KEY_REUSED")
        goes_on.set()
        made = first.result().json()["id"]
    assert send(other, "slow").json()["id"] == made
    assert db.xlen(job) == 2


@pytest.mark.parametrize("error", [QueueFull("full"), RedisUnavailable("gone")])
def test_a_request_that_was_refused_leaves_its_key_free(serve, db, job, monkeypatch, error):
    url = serve().url
    with monkeypatch.context() as patched:

        async def refuse(*_):
            raise error

        patched.setattr(RequestStore, "submit", refuse)
        assert send(url, "again").status_code == error.http_status
    assert send(url, "again").status_code == 202
    assert code(send(url, "wrong", {"instances": 3})) == (400, "INVALID_INPUT")
    assert send(url, "wrong").status_code == 202


def test_a_request_that_took_longer_than_its_claim_is_withdrawn(serve, db, job, monkeypatch):
    url = serve().url
    submit = RequestStore.submit

    async def overtaken(*args):
        for key in db.scan_iter("cluster-serving:idempotency:*"):
            db.set(key, "taken by another")
        return await submit(*args)

    monkeypatch.setattr(RequestStore, "submit", overtaken)
    assert code(send(url, "late")) == (409, "IDEMPOTENCY_KEY_IN_USE")
    assert db.xlen(job) == 0


def test_each_api_key_has_keys_of_its_own(serve, tmp_path):
    file = tmp_path / "keys"
    made = [new_key(name) for name in ("alice", "bob")]
    file.write_text("".join(f"{line}\n" for _, line in made))
    url = serve(f"--apiKeysFile={file}").url
    alice, bob = ({"x-api-key": key} for key, _ in made)
    first = send(url, "same", **alice).json()["id"]
    assert send(url, "same", OTHER, **bob).json()["id"] != first
    assert send(url, "same", **alice).json()["id"] == first


@pytest.mark.parametrize("key", ["", '""', "a" * 256, "two words"])
def test_a_key_that_is_none_is_refused(serve, db, job, key):
    response = send(serve().url, key)
    assert code(response) == (400, "INVALID_INPUT")
    assert "expected 1 to 255 visible characters" in response.json()["error"]
    assert db.xlen(job) == 0


def test_a_repetition_of_a_batch_gets_the_same_batch(serve, db):
    urls = [serve().url, serve().url]
    line = '{"custom_id": "1", "method": "POST", "url": "/v1/embeddings", "body": {"input": "a"}}\n'
    form = {"files": {"file": ("in.jsonl", line)}, "data": {"purpose": "batch"}}
    file = httpx.post(f"{urls[0]}/v1/files", **form).json()["id"]

    def begin(url, key="batch", **more):
        body = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h", **more}
        return httpx.post(f"{url}/v1/batches", json=body, headers={"idempotency-key": key}, timeout=30)

    first, again = [begin(url) for url in urls]
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json()["id"] == first.json()["id"]
    assert len(httpx.get(f"{urls[1]}/v1/batches").json()["data"]) == 1
    reused = begin(urls[1], metadata={"other": "body"})
    assert (reused.status_code, reused.json()["error"]["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert begin(urls[1], "other").json()["id"] != first.json()["id"]
