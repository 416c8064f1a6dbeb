"""Deadlines, with the clock of a real Redis."""

import itertools

import pytest

from cluster_serving.connectors.slot.deadlines import Deadlines
from cluster_serving.connectors.slot.redis import RedisClock
from cluster_serving.protocol.entry import Entry


@pytest.fixture
def entry_of(db):
    """A request that was queued so many milliseconds ago by the clock of Redis."""
    numbers = itertools.count()

    def make(waited_ms, deadline=b""):
        seconds, microseconds = db.time()
        queued = seconds * 1000 + microseconds // 1000 - waited_ms
        return Entry(f"{queued}-{next(numbers)}".encode(), "uri", b"", deadline=deadline)

    return make


def test_the_expired_ones_get_an_error(db, entry_of):
    entries = [entry_of(5000, b"60000"), entry_of(5000, b"100"), entry_of(5000), entry_of(5000, b"0")]
    expired = Deadlines(RedisClock(db), 0).expired(entries)
    assert list(expired) == [entries[1].place]
    assert "may wait for 100 ms" in str(expired[entries[1].place])


def test_the_jobs_deadline_holds_for_requests_without_one(db, entry_of):
    entries = [entry_of(5000), entry_of(5000, b"60000"), entry_of(5000, b"0"), entry_of(0)]
    assert list(Deadlines(RedisClock(db), 3000).expired(entries)) == [entries[0].place]


@pytest.mark.parametrize("deadline", [b"1.5", b"soon", b"1" * 16])
def test_a_deadline_that_cannot_be_read_is_left_to_the_decoder(db, entry_of, deadline):
    assert Deadlines(RedisClock(db), 1).expired([entry_of(5000, deadline)]) == {}


def test_without_deadlines_redis_is_not_asked(db, entry_of):
    entry = entry_of(5000)
    db.config_resetstat()
    assert Deadlines(RedisClock(db), 0).expired([entry]) == {}
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
def test_a_failover_to_a_redis_with_another_clock_drops_no_request_that_has_time(db, entry_of, ahead_s, refresh_s):
    redis = Shifted(db)
    deadlines = Deadlines(RedisClock(redis, refresh_s), 0)
    assert not deadlines.expired([entry_of(0, b"10000")])
    redis.ahead_s = ahead_s
    entries = [
        entry_of(1000, b"10000"),  # queued before the failover
        entry_of(1000 - 1000 * ahead_s, b"10000"),  # and after it
        entry_of(11_000 - 1000 * ahead_s, b"10000"),
    ]
    for _ in range(3):
        assert list(deadlines.expired(entries)) == [entries[2].place]


def test_no_request_is_dropped_while_redis_does_not_answer(redis_server, db, entry_of):
    entries = [entry_of(5000, b"100")]
    clock = RedisClock(db)
    assert clock.now_ms() is not None
    redis_server.stop()
    try:
        assert Deadlines(clock, 0).expired(entries) == {}
    finally:
        redis_server.start()
    assert len(Deadlines(clock, 0).expired(entries)) == 1
