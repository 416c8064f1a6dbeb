"""Deadlines, with the clock of a real Redis."""

import pytest

from cluster_serving.client import DeadlineExceeded, InvalidInput
from cluster_serving.connectors.redis import RedisClock
from cluster_serving.job.deadline import Deadlines
from cluster_serving.job.request import Request
from cluster_serving.protocol.entry import Entry


@pytest.fixture
def request_of(db):
    """A request that was queued so many milliseconds ago by the clock of Redis."""

    def make(waited_ms, deadline=b"", error=None):
        seconds, microseconds = db.time()
        queued = seconds * 1000 + microseconds // 1000 - waited_ms
        return Request(Entry(f"{queued}-0".encode(), "uri", b"", deadline=deadline), "", {}, error)

    return make


def test_the_expired_ones_of_a_batch_get_an_error_and_the_others_stay(db, request_of):
    batch = [request_of(5000, b"60000"), request_of(5000, b"100"), request_of(5000), request_of(5000, b"0")]
    checked, expired = Deadlines(RedisClock(db), 0).check(batch)
    assert expired == 1
    assert [after is before for before, after in zip(batch, checked, strict=True)] == [True, False, True, True]
    assert isinstance(checked[1].error, DeadlineExceeded)
    assert "may wait for 100 ms" in str(checked[1].error)


def test_the_jobs_deadline_holds_for_requests_without_one(db, request_of):
    batch = [request_of(5000), request_of(5000, b"60000"), request_of(5000, b"0"), request_of(0)]
    checked, expired = Deadlines(RedisClock(db), 3000).check(batch)
    assert expired == 1
    assert [request.error is None for request in checked] == [False, True, True, True]


def test_a_request_that_has_failed_already_keeps_its_error(db, request_of):
    error = InvalidInput("reason")
    for deadline in (b"1", b"1.5", b"soon"):
        checked, expired = Deadlines(RedisClock(db), 0).check([request_of(5000, deadline, error)])
        assert (expired, checked[0].error) == (0, error)


def test_without_deadlines_redis_is_not_asked(db, request_of):
    batch = [request_of(5000)]
    db.config_resetstat()
    assert Deadlines(RedisClock(db), 0).check(batch) == (batch, 0)
    assert "cmdstat_time" not in db.info("commandstats")


class Shifted:
    """A Redis, and after a failover another Redis with another clock."""

    def __init__(self, db):
        self._db = db
        self.ahead_s = 0

    def time(self):
        seconds, microseconds = self._db.time()
        return seconds + self.ahead_s, microseconds


@pytest.mark.parametrize(("ahead_s", "refresh_s"), [(60, 0), (-60, 0), (-60, 30)])
def test_a_failover_to_a_redis_with_another_clock_drops_no_request_that_has_time(db, request_of, ahead_s, refresh_s):
    redis = Shifted(db)
    deadlines = Deadlines(RedisClock(redis, refresh_s), 0)
    assert deadlines.check([request_of(0, b"10000")])[1] == 0
    redis.ahead_s = ahead_s
    batch = [
        request_of(1000, b"10000"),  # queued before the failover
        request_of(1000 - 1000 * ahead_s, b"10000"),  # and after it
        request_of(11_000 - 1000 * ahead_s, b"10000"),
    ]
    for _ in range(3):
        checked, expired = deadlines.check(batch)
        assert expired == 1
        assert [request.error is None for request in checked] == [True, True, False]


def test_no_request_is_dropped_while_redis_does_not_answer(redis_server, db, request_of):
    batch = [request_of(5000, b"100")]
    clock = RedisClock(db)
    assert clock.now_ms() is not None
    redis_server.stop()
    try:
        assert Deadlines(clock, 0).check(batch) == (batch, 0)
    finally:
        redis_server.start()
    assert Deadlines(clock, 0).check(batch)[1] == 1
