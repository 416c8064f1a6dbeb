"""Instances that go to Redis together."""

import asyncio
import json

import httpx
import pytest

from cluster_serving.frontend.models.turns import in_window

BODY = json.dumps({"instances": [{"x": [1, 2]}]}).encode()


@pytest.mark.usefixtures("echo", "vectors")
def test_instances_are_gathered_for_the_window_or_until_it_is_full(serve):
    slow = serve("--timeWindow=300", "--countWindow=1000").url
    assert httpx.post(f"{slow}/predict", content=BODY, timeout=30).elapsed.total_seconds() > 0.25
    # An hour's window that four instances fill.
    full = serve("--timeWindow=3600000", "--countWindow=4").url
    response = httpx.post(f"{full}/predict", json={"instances": [{"x": [n]} for n in range(4)]}, timeout=30)
    assert [prediction["value"] for prediction in response.json()["predictions"]] == [[0], [1], [2], [3]]


def test_works_in_a_window_are_made_as_others_end():
    made, running = [], set()
    most = 0

    async def work(number):
        nonlocal most
        running.add(number)
        most = max(most, len(running))
        await asyncio.sleep(0)
        if number == 3:
            # One that takes long holds only its own place.
            while len(made) < 10:
                await asyncio.sleep(0)
        running.discard(number)
        return number

    def works():
        for number in range(10):
            made.append(number)
            yield work(number)

    assert asyncio.run(in_window(works(), 4)) == [*range(10)]
    assert most == 4
