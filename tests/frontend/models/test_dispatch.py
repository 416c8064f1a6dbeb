"""Instances that go to Redis together."""

import json

import httpx
import pytest

BODY = json.dumps({"instances": [{"x": [1, 2]}]}).encode()


@pytest.mark.usefixtures("echo", "vectors")
def test_instances_are_gathered_for_the_window_or_until_it_is_full(serve):
    slow = serve("--timeWindow=300", "--countWindow=1000").url
    assert httpx.post(f"{slow}/predict", content=BODY, timeout=30).elapsed.total_seconds() > 0.25
    # An hour's window that four instances fill.
    full = serve("--timeWindow=3600000", "--countWindow=4").url
    response = httpx.post(f"{full}/predict", json={"instances": [{"x": [n]} for n in range(4)]}, timeout=30)
    assert [prediction["value"] for prediction in response.json()["predictions"]] == [[0], [1], [2], [3]]
