"""Rates, and places in flight."""

import asyncio
import json
from contextlib import ExitStack

import httpx
import pytest

from cluster_serving.frontend.errors import Overloaded, RateLimited
from cluster_serving.frontend.server.admission.admission import ConcurrencyLimit, TokenBucket
from tests.support.fixtures.front_end import connect
from tests.support.fixtures.waiting import wait_until

BODY = json.dumps({"instances": [{"x": [1, 2]}]}).encode()


@pytest.mark.usefixtures("echo", "vectors")
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
def test_further_instances_wait_for_a_place_and_are_refused_if_none_comes(serve, db, job, monkeypatch):
    monkeypatch.setattr("cluster_serving.frontend.options._MOST_WAITING", 3)
    front = serve("--parallelism=1")
    limit = front.front.dispatch.limit
    with ExitStack() as connections:
        for _ in range(4):
            connection = connections.enter_context(connect(front.url))
            connection.sendall(b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY))
        wait_until(lambda: (limit.count, limit.waiting) == (1, 3))
        refused = httpx.post(f"{front.url}/predict", content=BODY, timeout=30)
    assert refused.json()["code"] == "OVERLOADED"
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    wait_until(lambda: db.xlen(job) == 0)


@pytest.mark.usefixtures("echo", "vectors")
def test_a_parallelism_of_1_queues_what_it_does_not_compute(serve):
    url = serve("--parallelism=1").url

    async def main():
        async with httpx.AsyncClient(timeout=60) as client:
            return await asyncio.gather(*(client.post(f"{url}/predict", content=BODY) for _ in range(40)))

    assert {answer.status_code for answer in asyncio.run(main())} == {200}


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
