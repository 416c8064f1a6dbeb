"""The way of requests that all protocols share."""

import pytest

from cluster_serving.frontend.dataplane import succeeded
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput


def test_a_request_fails_with_its_first_failing_record():
    with pytest.raises(InvalidInput, match="record 1: bad"):
        succeeded([{}, InvalidInput("bad"), InferenceFailed("worse")])
    with pytest.raises(InvalidInput, match="^bad$"):
        succeeded([InvalidInput("bad")])
