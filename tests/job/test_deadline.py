"""Requests that waited too long, with the clock of a real Redis."""

import pytest

from cluster_serving.client import DeadlineExceeded, InvalidInput
from cluster_serving.client.protocol import Entry
from cluster_serving.connectors.redis_clock import RedisClock
from cluster_serving.job.deadline import Deadlines
from cluster_serving.job.request import Request


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
    checked, expired = Deadlines(RedisClock(db), 0).check([request_of(5000, b"1", error)])
    assert (expired, checked[0].error) == (0, error)


def test_without_deadlines_redis_is_not_asked(db, request_of):
    batch = [request_of(5000)]
    db.config_resetstat()
    assert Deadlines(RedisClock(db), 0).check(batch) == (batch, 0)
    assert "cmdstat_time" not in db.info("commandstats")
