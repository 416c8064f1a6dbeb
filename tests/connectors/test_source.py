"""The source of a slot, on a real Redis and without Flink; tests/e2e has the whole."""

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from cluster_serving.connectors import source
from cluster_serving.connectors.flink.entry_batch import EntryBatch
from cluster_serving.connectors.flink.slot_keys import SlotKeys
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot import reading
from cluster_serving.connectors.slot.answer import Answer, write_answers
from cluster_serving.connectors.slot.attempts import Attempts
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.connectors.slot.reading import ReadingOptions
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.connectors.stages import routing
from cluster_serving.job.operators import READING
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.generations import CANARY, CANDIDATE, RETIRING, SERVING, Generation
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.slots import SlotReport
from tests.support.fixtures.flink_context import Context
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def opened(redis_server, db, job):
    create_groups(db, job)
    JobStore(db, job).put(Generation(1, SERVING))
    sources = []

    def open_source(process_mode, index=0, **options):
        options = RedisOptions(redis_server.url, job, generation=1, version="1", **options)
        reading = ReadingOptions(options, 4, greedy=True, process_mode=process_mode, stages=READING)
        sources.append(source.RedisStreamsSource(reading, SlotKeys((0, 1), 1)))
        sources[-1].open(Context(index))
        return sources[-1]

    yield open_source
    for each in sources:
        each.close()
    db.delete(*JobKeys(job).streams, JobKeys(job).generations, JobKeys(job).slots())


def dead_canary(db, job, share, *uris):
    """A canary whose only slot has died with requests for its version; return the number that it holds."""
    JobStore(db, job).put(Generation(1, SERVING, version="1"))
    JobStore(db, job).put(Generation(2, CANARY, version="2", share=share))
    for uri in uris:
        db.xadd(JobKeys(job).stream("normal"), {"uri": uri, "data": b"x", "version": "2"})
    reader = StreamReader(db, job, JobKeys(job).consumer(2, 0), 1000)
    held = len(reader.read(10, 100)) if uris else 0
    reader.close()
    return held


def answered(slot, db, job, count):
    """Run a slot until it has emitted a number of requests, each of which is answered at once."""
    uris = []

    def goes_on():
        for batch in tick(slot):
            for entry in batch.entries or ():
                write_answers(db, job, 60, [Answer(entry, {"value": "1"})], "1")
                slot._reading.flow.answer(1)
                uris.append(entry.uri)
        return len(uris) >= count

    wait_until(goes_on)
    return uris


def uris_of(slot):
    """Return the requests of the next tick that has any."""
    uris = []
    wait_until(lambda: uris.extend(entry.uri for batch in tick(slot) for entry in batch.entries or ()) or uris)
    return uris


def tick(of):
    return [EntryBatch.from_bytes(record) for record in of.flat_map(0)]


def test_a_tick_of_process_mode_lasts_until_a_request_comes(opened, db, job):
    """Flink may lose a TaskManager if it cancels a job while a tick ends, so few of them end."""
    slot = opened(process_mode=True)
    # Flink opens the operators behind the source at their first record, which a tick passes on when it ends.
    assert [batch.entries for batch in tick(slot)] == [[]]
    slot._reading._opening = False
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(tick, slot)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=1)
        db.xadd(JobKeys(job).stream("normal"), {"uri": "a", "data": b"x"})
        assert [entry.uri for batch in waiting.result(timeout=4) for entry in batch.entries] == ["a"]


def test_a_tick_of_process_mode_ends_though_no_request_comes(opened, monkeypatch):
    """A process that Flink has given up must not look alive for ever."""
    monkeypatch.setattr(reading, "_LONGEST_WAIT", 0.5)
    slot = opened(process_mode=True)
    tick(slot)
    assert tick(slot) == []


def test_a_tick_of_thread_mode_ends_at_once_so_that_flink_can_cancel_it(opened):
    assert tick(opened(process_mode=False)) == []


def idle(slot):
    """Return a slot whose read goes on in Redis, as nothing has come, and which Flink cancels."""
    slot._reading._is_cancelled = lambda: True
    wait_until(lambda: tick(slot) == [] and slot._reading._reader.waits)
    return slot


def test_an_idle_slot_wakes_up_for_a_request(opened, db, job, monkeypatch):
    monkeypatch.setattr(reading, "_IDLE_BLOCK_MS", 60_000)
    slot = idle(opened(process_mode=False))
    slot._reading._is_cancelled = lambda: False
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(tick, slot)
        db.xadd(JobKeys(job).stream("high"), {"uri": "a", "data": b"x"})
        assert [entry.uri for batch in waiting.result(timeout=4) for entry in batch.entries] == ["a"]


def test_flink_can_cancel_an_idle_slot_whose_read_goes_on(opened, db, job, monkeypatch):
    monkeypatch.setattr(reading, "_IDLE_BLOCK_MS", 60_000)
    slot = idle(opened(process_mode=False))
    assert tick(slot) == []
    assert slot._reading._reader.waits
    db.xadd(JobKeys(job).stream("normal"), {"uri": "a", "data": b"x"})
    assert uris_of(slot) == ["a"]


def test_an_idle_slot_sees_another_generation_and_then_looks_often(opened, db, job, monkeypatch):
    monkeypatch.setattr(reading, "_IDLE_BLOCK_MS", 300)
    slot = idle(opened(process_mode=False))
    JobStore(db, job).put(Generation(2, CANDIDATE))
    wait_until(lambda: tick(slot) == [] and len(slot._reading._generation.now.all) == 2)
    for _ in range(3):
        assert tick(slot) == []
        assert not slot._reading._reader.waits


def test_a_slot_with_others_beside_it_looks_often_though_it_is_idle(opened):
    slot = opened(process_mode=False)
    slot._reading._slots = 2
    for _ in range(3):
        assert tick(slot) == []
        assert not slot._reading._reader.waits


def test_a_window_may_read_new_requests_by_itself(opened, db, job):
    slot = opened(process_mode=False)
    # The first tick recovers what an earlier run has left.
    assert slot._reading._read_directly(0) == []
    assert tick(slot) == []
    db.xadd(JobKeys(job).stream("normal"), {"uri": "a", "data": b"x"})
    assert [entry.uri for entry in slot._reading._read_directly(1)] == ["a"]
    assert slot._reading.flow._announced == 1
    assert slot._reading._read_directly(0.01) == []


def test_a_window_leaves_a_long_queue_to_the_source_which_reads_ahead(opened, db, job):
    slot = opened(process_mode=False)
    assert tick(slot) == []
    for number in range(9):
        db.xadd(JobKeys(job).stream("normal"), {"uri": str(number), "data": b"x"})
    assert len(slot._reading._read_directly(1)) == 4
    assert slot._reading._read_directly(1) == []


def test_a_window_does_not_read_for_a_generation_that_ends(opened, db, job):
    slot = opened(process_mode=False)
    assert tick(slot) == []
    db.xadd(JobKeys(job).stream("normal"), {"uri": "a", "data": b"x"})
    JobStore(db, job).put(Generation(1, RETIRING))
    wait_until(lambda: slot._reading._generation.look() or slot._reading._generation.retires)
    assert slot._reading._read_directly(1) == []


def test_requests_that_the_window_has_read_are_counted_by_the_source(opened, db, job, monkeypatch):
    slot = opened(process_mode=False)
    assert tick(slot) == []
    db.xadd(JobKeys(job).stream("normal"), {"uri": "a", "data": b"x"})
    slot._reading._read_directly(1)
    counted = []
    monkeypatch.setattr(slot, "_requests", SimpleNamespace(inc=counted.append))
    tick(slot)
    tick(slot)
    assert counted == [1]


def test_a_canary_that_has_died_stops_no_slot_of_the_generation_that_serves(opened, db, job):
    """The slot claims what the canary held, and leaves it there again, since it names the version of the canary."""
    assert dead_canary(db, job, 10, "pinned") == 1
    slot = opened(process_mode=False, claim_idle_time_s=1)
    sent = 0

    def send():
        nonlocal sent
        db.xadd(JobKeys(job).stream("normal"), {"uri": f"r{sent}", "data": b"x"})
        sent += 1

    send()
    # Until the slot has claimed it, and after that.
    wait_until(lambda: tick(slot) is not None and slot._reading._reader.recovering)
    for _ in range(20):
        send()
    assert len(set(answered(slot, db, job, 15))) >= 15


def test_a_canary_with_the_larger_share_that_has_died_does_not_keep_requests_from_all(opened, db, job, monkeypatch):
    monkeypatch.setattr(routing, "_LEFT_MS", 500)
    dead_canary(db, job, 60)
    slot = opened(process_mode=False)
    for number in range(10):
        db.xadd(JobKeys(job).stream("normal"), {"uri": f"r{number}", "data": b"x"})
    assert set(answered(slot, db, job, 10)) == {f"r{number}" for number in range(10)}


def test_a_request_that_is_read_while_the_job_is_stopped_is_not_refused(opened, db, job):
    """Its version is served again after the next start."""
    slot = opened(process_mode=False)
    wait_until(lambda: not tick(slot) and not slot._reading._reader.recovering)
    # What a thread of the slot sees while another one waits for requests.
    db.delete(JobKeys(job).generations)
    db.hset(JobKeys(job).generations, "last", 1)
    wait_until(lambda: slot._reading._generation.look() or not slot._reading._generation.now.reading)
    db.xadd(JobKeys(job).stream("normal"), {"uri": "a", "data": b"x", "version": "1"})
    (entry,) = slot._reading._read_stages(10, 100)
    assert (entry.uri, entry.version) == ("a", "1")


def test_what_expires_while_a_batch_is_computed_is_answered_then_and_makes_room(opened, db, job):
    slot = opened(process_mode=False)
    slot._reading.flow.attached = True

    def queue(*uris, **fields):
        for uri in uris:
            db.xadd(job, {"uri": uri, "data": b"x", "serde": "arrow", **fields})

    def goes_on(condition):
        wait_until(lambda: tick(slot) is not None and condition())

    queue("computed")
    goes_on(lambda: slot._reading.flow.unanswered == 1)
    assert len(slot._reading.flow.take()) == 1
    # One batch may wait beside the four requests of the next; no more is read.
    queue("a", "b", "c", "d", deadline=200)
    queue("e", "f", "g", "h")
    goes_on(lambda: db.hget(JobKeys(job).native_result("d"), "code") == b"DEADLINE_EXCEEDED")
    goes_on(lambda: slot._reading.flow.unanswered == 5)
    taken = [entry.uri for entries in slot._reading.flow._entries for entry in entries]
    assert taken == ["e", "f", "g", "h"]
    assert not db.exists(JobKeys(job).native_result("computed"))


def test_what_has_expired_before_it_is_read_takes_no_place(opened, db, job):
    slot = opened(process_mode=False)
    for uri in "abcd":
        db.xadd(job, {"uri": uri, "data": b"x", "serde": "arrow", "deadline": 1 if uri < "d" else 60_000})
    time.sleep(0.01)
    assert answered(slot, db, job, 1) == ["d"]
    assert db.hget(JobKeys(job).native_result("a"), "code") == b"DEADLINE_EXCEEDED"


def test_a_refusal_that_no_repetition_mends_is_noted_until_it_is(opened, db, job):
    slot = opened(process_mode=False)
    tick(slot)
    db.execute_command("ACL", "SETUSER", "default", "-xreadgroup")
    try:
        wait_until(lambda: tick(slot) is not None and slot._reading._shared.ticks.problem)
        assert "xreadgroup" in slot._reading._shared.ticks.problem
    finally:
        db.execute_command("ACL", "SETUSER", "default", "+@all")
    wait_until(lambda: tick(slot) is not None and not slot._reading._shared.ticks.problem)


def test_a_request_is_not_given_up_while_the_slot_that_seemed_dead_still_computes_it(opened, db, job):
    """A slot that has no processor for a while looks dead; what it computes is taken over, and is no one's fault."""
    stream = JobKeys(job).stream("normal")
    for uri in "ab":
        db.xadd(stream, {"uri": uri, "data": b"x"})
    StreamReader(db, job, JobKeys(job).consumer(1, 0), 1000).read(2, None)
    late, other = opened(process_mode=False, max_deliveries=2), opened(process_mode=False, index=1, max_deliveries=2)
    (entry,) = tick(late)[0].entries
    db.xclaim(stream, GROUP, JobKeys(job).consumer(1, 1), 0, [entry.id], justid=True)
    late._reading.flow.answer(1)
    assert uris_of(late) == ["b"]
    assert uris_of(other) == [entry.uri] == ["a"]
    assert not db.exists(JobKeys(job).dead_letters)


def test_a_recovered_request_is_alone_where_all_before_it_are_answered(opened, db, job):
    """A window in another process does not say what it has answered."""
    attempts = Attempts(db, job)
    db.xadd(JobKeys(job).stream("normal"), {"uri": "a", "data": b"x"})
    held = StreamReader(db, job, JobKeys(job).consumer(1, 0), 1000).read(1, None)
    slot = opened(process_mode=True)
    assert [batch.entries for batch in tick(slot)] == [[]]
    slot._reading._opening = False
    assert uris_of(slot) == ["a"]
    assert attempts.last(held[0]).alone
    # As after an error of Redis.
    slot._reading._reader.start_over()
    assert uris_of(slot) == ["a"]
    assert not attempts.last(held[0]).alone


def reported(db, job, attempt, state):
    db.hset(JobKeys(job).slots(), 0, SlotReport("submitted", state, attempt=attempt).to_json())


@pytest.mark.parametrize("held", [False, True])
def test_requests_wait_in_redis_while_the_model_loads(opened, db, job, monkeypatch, held):
    """What lies in Flink then could not be taken back, and a crash in the load of the model would be its own."""
    monkeypatch.setattr(reading, "_LONGEST_WAIT", 0.3)
    for uri in "ab":
        db.xadd(JobKeys(job).stream("normal"), {"uri": uri, "data": b"x"})
    if held:
        StreamReader(db, job, JobKeys(job).consumer(1, 0), 1000).read(2, None)
    slot = opened(process_mode=True)
    assert [batch.entries for batch in tick(slot)] == [[]]
    assert tick(slot) == []
    # The window opens in this process, after what is behind it.
    slot._reading.flow.arrive(0)
    assert [batch.entries for batch in tick(slot)] == [None]
    assert [entry.uri for entry in slot._reading.flow.take()] == (["a"] if held else ["a", "b"])


@pytest.mark.parametrize("end", ["ready", "failed"])
def test_a_window_in_another_process_is_open_when_its_slot_has_reported(opened, db, job, monkeypatch, end):
    monkeypatch.setattr(reading, "_LONGEST_WAIT", 0.3)
    reported(db, job, "earlier", "ready")
    db.xadd(JobKeys(job).stream("normal"), {"uri": "a", "data": b"x"})
    slot = opened(process_mode=True)
    assert [batch.entries for batch in tick(slot)] == [[]]
    for attempt, state in (("earlier", "ready"), ("this", "loading")):
        reported(db, job, attempt, state)
        assert tick(slot) == []
    reported(db, job, "this", end)
    assert uris_of(slot) == ["a"]
