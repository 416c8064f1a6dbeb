"""The limit on lines of a log."""

import time

from cluster_serving.protocol import log_limit
from cluster_serving.protocol.log_limit import LogLimit


def test_lines_beyond_the_limit_are_left_out_and_counted(monkeypatch):
    monkeypatch.setattr(log_limit, "_SECONDS", 0.2)
    limit = LogLimit(most=2)
    assert [limit.take("kind") for _ in range(5)] == ["", "", None, None, None]
    assert limit.take("another") == ""
    time.sleep(0.2)
    assert [limit.take("kind") for _ in range(3)] == [" (3 more since the last line)", "", None]


def test_kinds_are_bounded():
    limit = LogLimit()
    for number in range(1000):
        limit.take(number)
    assert len(limit._kinds) == 256
