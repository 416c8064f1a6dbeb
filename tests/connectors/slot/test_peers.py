"""Requests of a slot that has died, on a real Redis."""

from __future__ import annotations

import time

import pytest

from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.peers import HEARTBEAT_S, Peers, SilenceLimit
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.protocol.keys import GROUP, JobKeys

LONG_MS = 60_000


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def slots(db, job):
    """Readers of the slots 0 and 1, which have read the requests `a` and `b`, and the watch of slot 0."""
    create_groups(db, job)
    readers = [StreamReader(db, job, JobKeys(job).consumer(1, index), LONG_MS) for index in range(2)]
    for uri, reader in zip("ab", readers, strict=True):
        db.xadd(job, {"uri": uri, "data": b"x"})
        reader.read(1, None)
    clock = Clock()
    peers = Peers(db, JobKeys(job).streams, JobKeys(job).consumer(1, 0), JobKeys(job).consumers(1), clock)
    return readers, peers, clock


def look(peers, clock, after=0.11):
    """Look again; in time, if not told otherwise."""
    clock.now += after
    return peers.take_over()


def beat(db, job, name):
    """A sign of life, as `StreamReader.heartbeat` gives it."""
    db.xreadgroup(GROUP, name, {stream: "0" for stream in JobKeys(job).streams}, count=1)


def silence(db, job, name, idle_ms=600):
    """A consumer whose last sign of life was so long ago, with what it holds."""
    for item in db.xpending_range(job, GROUP, "-", "+", 10, name):
        db.xclaim(job, GROUP, name, 0, [item["message_id"]], idle=idle_ms, justid=True)
    # The idle time of a consumer cannot be set.
    time.sleep(idle_ms / 1000)


def held_by(db, job, name):
    return len(db.xpending_range(job, GROUP, "-", "+", 10, name))


def test_requests_of_a_silent_slot_are_taken_over_at_the_second_look(db, job, slots):
    (own, _), peers, clock = slots
    silence(db, job, JobKeys(job).consumer(1, 1))
    assert not look(peers, clock)
    assert look(peers, clock)
    assert (held_by(db, job, JobKeys(job).consumer(1, 0)), held_by(db, job, JobKeys(job).consumer(1, 1))) == (2, 0)
    own.start_over()
    assert [own.recover(0)[0].uri] == ["a"]


def test_a_slot_that_gives_a_sign_of_life_keeps_its_requests(db, job, slots):
    _, peers, clock = slots
    silence(db, job, JobKeys(job).consumer(1, 1))
    assert not look(peers, clock)
    beat(db, job, JobKeys(job).consumer(1, 1))
    assert not look(peers, clock)
    assert held_by(db, job, JobKeys(job).consumer(1, 1)) == 1


def test_after_a_standstill_nobody_is_taken_for_dead_at_once(db, job, slots):
    """As of Redis, or of this slot: all others seem silent then."""
    _, peers, clock = slots
    silence(db, job, JobKeys(job).consumer(1, 1), 1600)
    assert not look(peers, clock)
    assert not look(peers, clock, after=5)
    assert held_by(db, job, JobKeys(job).consumer(1, 1)) == 1
    assert look(peers, clock)


def test_a_slot_that_was_late_before_is_not_taken_for_dead_so_soon(db, job, slots):
    _, peers, clock = slots
    name = JobKeys(job).consumer(1, 1)
    silence(db, job, name)
    assert not look(peers, clock)
    beat(db, job, name)
    assert not look(peers, clock)
    silence(db, job, name)
    assert not look(peers, clock)
    assert not look(peers, clock)
    silence(db, job, name, 1600)
    assert not look(peers, clock)
    assert look(peers, clock)


def test_a_request_that_was_taken_over_before_is_not_taken_over_so_soon(db, job, slots):
    """It may keep each slot that computes it from giving signs of life."""
    _, peers, clock = slots
    name = JobKeys(job).consumer(1, 1)
    (item,) = db.xpending_range(job, GROUP, "-", "+", 10, name)
    db.xclaim(job, GROUP, name, 0, [item["message_id"]], retrycount=2)
    time.sleep(0.6)
    assert not look(peers, clock)
    assert not look(peers, clock)
    assert held_by(db, job, name) == 1
    time.sleep(1.5)
    assert look(peers, clock)


@pytest.mark.parametrize(
    ("delays", "limit"),
    [
        ([0.05], 3 * HEARTBEAT_S),
        ([0.05, 0.3, 0.05], 1.05),
        ([1.2], 1.5),
        ([10], 1.5),
    ],
)
def test_the_longest_delay_decides_what_silence_means_death(delays, limit):
    silence_limit = SilenceLimit()
    for delay in delays:
        silence_limit.note(delay, 100)
    assert silence_limit.seconds == pytest.approx(limit)


def test_a_slot_that_comes_back_has_time_to_load_its_model():
    silence_limit = SilenceLimit()
    silence_limit.note(60, 100)
    silence_limit.note(0, 130)
    assert silence_limit.seconds == 1.5


def test_a_delay_is_forgotten_with_time():
    silence_limit = SilenceLimit()
    limits = []
    for now in (100, 110, 120, 300):
        silence_limit.note(0.3 if now == 100 else 0, now)
        limits.append(silence_limit.seconds)
    assert limits == sorted(limits, reverse=True)
    assert limits[0] > limits[1] > limits[2] > limits[3] == 3 * HEARTBEAT_S


def test_slots_of_other_generations_and_their_like_are_left_alone(db, job, slots):
    _, peers, clock = slots
    names = [JobKeys(job).consumer(11, 0), f"{job}-left-1", "echo"]
    for name in names:
        db.xadd(job, {"uri": name, "data": b"x"})
        db.xreadgroup(GROUP, name, {job: ">"}, count=1)
    silence(db, job, names[0])
    beat(db, job, JobKeys(job).consumer(1, 1))
    assert not look(peers, clock)
    assert not look(peers, clock)


def test_an_answer_of_the_slot_that_comes_back_counts_once(db, job, slots):
    _, peers, clock = slots
    silence(db, job, JobKeys(job).consumer(1, 1))
    look(peers, clock)
    assert look(peers, clock)
    (entry,) = [item["message_id"] for item in db.xpending_range(job, GROUP, "-", "+", 10)][1:]
    # Both acknowledge, as the script of the answer does: the second finds nothing to answer.
    assert [db.xack(job, GROUP, entry) for _ in range(2)] == [1, 0]


def test_a_reader_without_others_looks_for_nobody(db, job):
    create_groups(db, job)
    assert not StreamReader(db, job, JobKeys(job).consumer(1, 0), LONG_MS).take_over()
