"""Requests that slots leave to those of another generation, on a real Redis."""

import redis

from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.generations import SERVING, Generation, is_in_trial
from cluster_serving.protocol.keys import GROUP, JobKeys

CLAIM_IDLE_MS = 60_000


def reader_of(db, job, generation, subtask=0):
    return StreamReader(db, job, JobKeys(job).consumer(generation, subtask), CLAIM_IDLE_MS)


def queue(db, job, *uris):
    create_groups(db, job)
    for uri in uris:
        priority, _, _ = uri.partition("-")
        db.xadd(JobKeys(job).stream(priority if priority == "high" else "normal"), {"uri": uri, "data": b"x"})


def clean(db, job):
    db.delete(*JobKeys(job).streams, JobKeys(job).generations)


def test_a_request_that_is_handed_over_to_a_generation_is_claimed_once_and_has_not_been_tried(db, job):
    queue(db, job, "a", "b", "high-c")
    old, first, second = reader_of(db, job, 1), reader_of(db, job, 2), reader_of(db, job, 2, 1)
    entries = old.read(10, None)
    old.hand_over(entries[1:], JobKeys(job).handed_to(2))
    taken = first.claim(JobKeys(job).handed_to(2), 10)
    assert sorted(entry.uri for entry in taken) == sorted(entry.uri for entry in entries[1:])
    assert {entry.data for entry in taken} == {b"x"}
    assert second.claim(JobKeys(job).handed_to(2), 10) == []
    pending = [item for stream in JobKeys(job).streams for item in db.xpending_range(stream, GROUP, "-", "+", 10)]
    assert {item["times_delivered"] for item in pending} == {1}
    clean(db, job)


def test_requests_wait_for_their_generation_before_another_one_takes_them(db, job):
    queue(db, job, "a")
    old = reader_of(db, job, 1)
    old.hand_over(old.read(10, None), JobKeys(job).handed_to(2))
    assert old.claim(JobKeys(job).handed_to(2), 10, idle_ms=60_000) == []
    assert [entry.uri for entry in old.claim(JobKeys(job).handed_to(2), 10, idle_ms=0)] == ["a"]
    clean(db, job)


def test_what_a_generation_leaves_unanswered_is_recovered_by_the_next_one_at_once(redis_server, db, job):
    queue(db, job, "a", "b", "high-c")
    reader_of(db, job, 1).read(2, None)
    reader_of(db, job, 1, 1).read(2, None)
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        store = JobStore(client, job)
        store.put(Generation(2, SERVING))
        assert store.unanswered(1) == 3
        store.end(1)
        assert store.unanswered(1) == 0
        assert list(store.generations().all) == [2]
    following = reader_of(db, job, 2)
    while following.recover(0):
        pass
    assert following.claim_orphans()
    recovered = []
    while found := following.recover(0):
        entry, deliveries = found
        recovered.append((entry.uri, deliveries))
        db.xack(JobKeys(job).stream(entry.priority), GROUP, entry.id)
    assert sorted(recovered) == [("a", 2), ("b", 2), ("high-c", 2)]
    names = {item["name"] for item in db.xinfo_consumers(job, GROUP)}
    assert not {name for name in names if name.startswith(f"{job}-1-".encode())}
    clean(db, job)


def test_a_slot_that_retires_leaves_what_a_crash_has_interrupted(db, job):
    queue(db, job, "a", "high-b")
    reader_of(db, job, 1).read(10, None)
    again = reader_of(db, job, 1)
    again.hand_over_all()
    following = reader_of(db, job, 2)
    while following.recover(0):
        pass
    assert following.claim_orphans()
    assert {following.recover(0)[0].uri} <= {"a", "b", "high-b"}
    assert not db.xpending_range(job, GROUP, "-", "+", 10, again._consumer)
    clean(db, job)


def test_a_canary_gets_its_share_of_any_run_of_requests():
    for share in (1, 10, 33.3, 50, 99, 100):
        for start in (0, 17, 10**9):
            chosen = sum(is_in_trial(number, share) for number in range(start, start + 10_000))
            assert abs(chosen - 100 * share) < 10
