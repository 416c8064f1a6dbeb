"""Consumer of a stream, on a real Redis, and weighted round robin."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.connectors.slot.stream import WEIGHTS, StreamReader, WeightedRoundRobin
from cluster_serving.protocol.keys import GROUP
from tests.support.fixtures.redis_server import on_each_server
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def reader(db, job):
    create_group(db, job)
    return StreamReader(db, job, f"{job}-0", claim_idle_ms=60_000)


def add(db, job, *uris):
    for uri in uris:
        db.xadd(job, {"uri": uri, "data": b"x"})


def recover_all(db, job, reader):
    """Recover, answer and count every pending entry."""
    recovered_uris = []
    while (recovered := reader.recover(0)) is not None:
        entry, times = recovered
        recovered_uris.append((entry.uri, times))
        db.xack(job, GROUP, entry.id)
    return recovered_uris


def uris(entries):
    return [entry.uri for entry in entries]


def test_requests_from_before_the_group_existed_are_read(db, job):
    add(db, job, "a", "b")
    create_group(db, job)
    create_group(db, job)
    assert uris(StreamReader(db, job, "c", 60_000).read(10, None)) == ["a", "b"]


def test_requests_that_a_slot_has_read_count_as_unanswered(db, job, reader):
    assert reader.length() == 0
    add(db, job, "r1", "r2", "r3")
    reader.read(1, None)
    assert reader.length() == 3


def test_after_a_restart_a_consumer_finds_its_own_pending_entries_one_by_one(db, job, reader):
    add(db, job, *"abcd")
    assert uris(reader.read(3, None)) == ["a", "b", "c"]
    again = StreamReader(db, job, f"{job}-0", 60_000)
    assert again.recovering
    assert recover_all(db, job, again) == [("a", 2), ("b", 2), ("c", 2)]
    assert not again.recovering
    assert uris(again.read(2, None)) == ["d"]


def test_entries_in_an_answer_that_got_lost_are_found_again(db, job, reader):
    reader.recover(0)
    add(db, job, "a")
    db.xreadgroup(GROUP, f"{job}-0", {job: ">"})
    assert reader.read(1, None) == []
    reader.start_over()
    assert reader.recover(0)[0].uri == "a"


def test_only_the_entry_that_was_being_computed_counts_another_delivery(db, job, reader):
    add(db, job, *"abc")
    reader.read(3, None)
    for times in (2, 3, 4):
        assert StreamReader(db, job, f"{job}-0", 60_000).recover(0)[1] == times
    assert recover_all(db, job, reader) == [("a", 5), ("b", 2), ("c", 2)]


def test_the_next_entry_is_recovered_only_after_the_one_before_is_answered(db, job, reader):
    add(db, job, *"ab")
    reader.read(2, None)
    reader.start_over()
    entry, _ = reader.recover(0)
    assert reader.recover(0.01) is None
    assert reader.recovering
    db.xack(job, GROUP, entry.id)
    assert reader.recover(0)[0].uri == "b"


def test_entries_of_a_dead_consumer_are_claimed(db, job, reader):
    add(db, job, *"abc")
    reader.read(3, None)
    time.sleep(0.01)
    other = StreamReader(db, job, f"{job}-1", claim_idle_ms=1)
    assert other.recover(0) is None
    assert other.read(2, None) == []
    assert other.recovering
    assert recover_all(db, job, other) == [("a", 2), ("b", 2), ("c", 2)]


def test_entries_of_a_living_consumer_are_left_alone(db, job, reader):
    add(db, job, "a")
    reader.read(1, None)
    other = StreamReader(db, job, f"{job}-1", claim_idle_ms=60_000)
    assert other.read(1, None) == []


def test_a_heartbeat_counts_as_life_but_takes_nothing(db, job, reader):
    add(db, job, "a", "b")
    reader.read(1, None)
    before = db.xpending_range(job, GROUP, "-", "+", 10)
    reader._next_heartbeat = 0
    time.sleep(0.1)
    reader.heartbeat()
    after = db.xpending_range(job, GROUP, "-", "+", 10)
    assert [item["times_delivered"] for item in after] == [item["times_delivered"] for item in before] == [1]
    assert db.xinfo_consumers(job, GROUP)[0]["idle"] < 100


each_damage = pytest.mark.parametrize(
    "damage", [lambda db, job: db.delete(job), lambda db, job: db.xgroup_destroy(job, GROUP)], ids=["stream", "group"]
)


@each_damage
@on_each_server
def test_a_stream_or_group_that_disappears_is_created_again(db, job, reader, damage):
    damage(db, job)
    assert reader.recover(0) is None
    assert reader.read(1, None) == []
    add(db, job, "a")
    assert uris(reader.read(1, None)) == ["a"]


@each_damage
@on_each_server
def test_a_stream_or_group_that_disappears_under_a_read_is_created_again(db, job, reader, damage):
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(reader.read, 1, 2000)
        wait_until(lambda: db.info("clients")["blocked_clients"] == 1)
        damage(db, job)
        assert reading.result(30) == []
    add(db, job, "a")
    wait_until(lambda: uris(reader.read(1, None)) == ["a"])


@each_damage
@on_each_server
def test_a_stream_or_group_that_disappears_under_a_read_that_goes_on_is_created_again(db, job, reader, damage):
    assert reader.read(1, 10, longest_ms=1000) == []
    assert reader.waits
    damage(db, job)
    wait_until(lambda: reader.read_on(50) or not reader.waits)
    add(db, job, "a")
    wait_until(lambda: uris(reader.read(1, None)) == ["a"])


def test_a_read_goes_on_until_a_request_comes(db, job, reader):
    assert reader.read(1, 10, longest_ms=60_000) == []
    assert reader.read_on(10) == []
    add(db, job, "a")
    assert uris(reader.read_on(2000)) == ["a"]
    assert not reader.waits


def test_entries_without_a_client_are_dropped(db, job, reader):
    db.xadd(job, {"foo": "bar"})
    gone = db.xadd(job, {"uri": "deleted", "data": "x"})
    add(db, job, "a")
    assert uris(reader.read(10, None)) == ["deleted", "a"]
    db.xdel(job, gone)
    again = StreamReader(db, job, f"{job}-0", 60_000)
    assert recover_all(db, job, again) == [("a", 2)]
    assert db.xpending(job, GROUP)["pending"] == 0
    assert db.xlen(job) == 1


def test_an_unusable_redis_is_reported(job):
    with redis.Redis(port=1) as client, pytest.raises(redis.ConnectionError):
        StreamReader(client, job, "c", 60_000).read(1, None)


@pytest.mark.parametrize("count", [1, 2, 7, 16, 100])
def test_over_time_each_priority_gets_its_weight_however_many_are_read_at_once(count):
    round_robin = WeightedRoundRobin()
    got = dict.fromkeys(WEIGHTS, 0)
    for _ in range(16 * 10):
        part = round_robin.divide(count)
        assert sum(part.values()) == count
        for name, number in part.items():
            got[name] += number
    assert got == {name: weight * 10 * count for name, weight in WEIGHTS.items()}


def test_no_priority_waits_for_long():
    round_robin = WeightedRoundRobin()
    turns = [max(part, key=part.get) for part in (round_robin.divide(1) for _ in range(32))]
    assert turns.count("low") == 2
    assert turns[0] == "high"
    assert "normal" in turns[:4]
