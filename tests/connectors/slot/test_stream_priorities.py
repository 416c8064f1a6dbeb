"""The consumer of a job's streams when priorities are in use, on a real Redis."""

import time

import pytest

from cluster_serving.connectors.slot.answer import Answer, dead_letter, write_answers
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.protocol.errors import PoisonRequest
from cluster_serving.protocol.keys import GROUP, PRIORITIES, JobKeys


@pytest.fixture
def reader(db, job):
    create_groups(db, job)
    reader = StreamReader(db, job, f"{job}-0", claim_idle_ms=60_000)
    assert reader.recover(0) is None
    return reader


def add(db, job, priority, count, start=0):
    for number in range(start, start + count):
        db.xadd(JobKeys(job).stream(priority), {"uri": f"{priority}-{number}", "data": b"x"})


def pending(db, job):
    return {stream: db.xpending(stream, GROUP)["pending"] for stream in JobKeys(job).streams}


def uris(entries):
    return [entry.uri for entry in entries]


def drain(db, job, reader, count):
    """Read and answer all requests; return the priorities of each read."""
    reads = []
    while entries := reader.read(count, None):
        reads.append([entry.priority for entry in entries])
        write_answers(db, job, 60, [Answer(entry, {"value": "x"}) for entry in entries])
    return reads


def test_higher_priorities_come_first_and_each_in_order(db, job, reader):
    for priority in reversed(PRIORITIES):
        add(db, job, priority, 2)
    assert uris(reader.read(10, None)) == ["high-0", "high-1", "normal-0", "normal-1", "low-0", "low-1"]


@pytest.mark.parametrize("count", [1, 8, 32])
def test_under_backlog_high_goes_first_and_no_priority_starves(db, job, reader, count):
    for priority in PRIORITIES:
        add(db, job, priority, 200)
    order = [priority for read in drain(db, job, reader, count) for priority in read]
    assert {priority: order.count(priority) for priority in PRIORITIES} == dict.fromkeys(PRIORITIES, 200)
    last = {priority: len(order) - order[::-1].index(priority) for priority in PRIORITIES}
    assert last["high"] < last["normal"] < last["low"] == 600
    # While high requests wait, three of four reads are high; the other priorities go on.
    while_high = order[: last["high"]]
    assert while_high.count("high") / len(while_high) > 0.6
    assert while_high.count("low") >= 8


def test_each_priority_stays_in_order_under_backlog(db, job, reader):
    for priority in PRIORITIES:
        add(db, job, priority, 100)
    seen = []
    while entries := reader.read(7, None):
        seen += uris(entries)
    for priority in PRIORITIES:
        assert [uri for uri in seen if uri.startswith(priority)] == [f"{priority}-{n}" for n in range(100)]


def test_only_the_first_mixed_read_gives_more_than_asked_for(db, job, reader):
    for priority in PRIORITIES:
        add(db, job, priority, 50)
    sizes = [len(read) for read in drain(db, job, reader, 8)]
    assert sizes[0] == 24
    assert all(size <= 8 for size in sizes[1:])


def test_a_high_request_overtakes_a_backlog(db, job, reader):
    add(db, job, "normal", 100)
    assert len(reader.read(8, None)) == 8
    add(db, job, "high", 1)
    assert uris(reader.read(8, None))[0] == "high-0"


def test_without_priorities_a_read_is_one_command(db, job, reader):
    add(db, job, "normal", 40)
    reader.read(1, None)
    db.config_resetstat()
    for _ in range(5):
        assert len(reader.read(7, None)) == 7
    assert len(reader.read(7, None)) == 4
    assert reader.read(7, 10) == []
    assert db.info("commandstats")["cmdstat_xreadgroup"]["calls"] == 7


def test_after_a_mixed_backlog_reads_are_one_command_again(db, job, reader):
    for priority in PRIORITIES:
        add(db, job, priority, 20)
    drain(db, job, reader, 8)
    db.config_resetstat()
    for _ in range(5):
        reader.read(8, None)
    assert db.info("commandstats")["cmdstat_xreadgroup"]["calls"] == 5


def test_an_idle_reader_wakes_up_for_any_priority(db, job, reader):
    for priority in PRIORITIES:
        add(db, job, priority, 1)
        assert uris(reader.read(8, 10_000)) == [f"{priority}-0"]


def test_pending_entries_of_all_priorities_are_recovered_one_by_one(db, job, reader):
    for priority in reversed(PRIORITIES):
        add(db, job, priority, 2)
    reader.read(10, None)
    again = StreamReader(db, job, f"{job}-0", 60_000)
    recovered_uris = []
    while (recovered := again.recover(0)) is not None:
        entry, deliveries = recovered
        assert again.recover(0) is None, "one at a time"
        recovered_uris.append((entry.uri, deliveries))
        write_answers(db, job, 60, [Answer(entry, {"value": "x"})])
    assert recovered_uris == [(f"{priority}-{number}", 2) for priority in PRIORITIES for number in range(2)]
    assert not again.recovering


def test_entries_of_a_dead_consumer_are_claimed_in_all_streams(db, job, reader):
    for priority in PRIORITIES:
        add(db, job, priority, 2)
    reader.read(10, None)
    time.sleep(0.01)
    other = StreamReader(db, job, f"{job}-1", claim_idle_ms=1)
    assert other.recover(0) is None
    assert other.read(2, None) == []
    taken = [db.xpending_range(stream, GROUP, "-", "+", 10, f"{job}-1") for stream in JobKeys(job).streams]
    assert [len(entries) for entries in taken] == [2, 2, 2]


def test_a_heartbeat_counts_in_all_groups(db, job, reader):
    reader.read(1, None)
    reader._next_heartbeat = 0
    time.sleep(0.1)
    reader.heartbeat()
    assert all(db.xinfo_consumers(stream, GROUP)[0]["idle"] < 100 for stream in JobKeys(job).streams)


@pytest.mark.parametrize("priority", PRIORITIES)
def test_a_stream_that_disappears_is_created_again(db, job, reader, priority):
    db.delete(JobKeys(job).stream(priority))
    assert reader.read(1, None) == []
    add(db, job, priority, 1)
    assert uris(reader.read(1, None)) == [f"{priority}-0"]


@pytest.mark.parametrize("full", [False, True])
def test_answers_and_dead_letters_leave_the_right_stream(db, job, reader, full):
    for priority in PRIORITIES:
        add(db, job, priority, 2)
    entries = reader.read(10, None)
    if full:
        db.config_set("maxmemory", 1)
    try:
        write_answers(db, job, 60, [Answer(entry, {"value": "x"}) for entry in entries[::2]])
        for entry in entries[1::2]:
            dead_letter(db, job, 60, entry, PoisonRequest("reason"))
    finally:
        db.config_set("maxmemory", 0)
    assert [db.xlen(stream) for stream in JobKeys(job).streams] == [0, 0, 0]
    assert set(pending(db, job).values()) == {0}
    assert all(db.exists(JobKeys(job).result(entry.uri)) for entry in entries)
