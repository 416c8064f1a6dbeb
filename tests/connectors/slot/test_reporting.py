"""Reports of a job in a real Redis: limits and slots."""

import threading
import time
from contextlib import contextmanager

import pytest
import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot import reporting, ticks
from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.connectors.slot.limits import publish_limits
from cluster_serving.connectors.slot.redis import write_hash
from cluster_serving.connectors.slot.reporting import SlotReporter
from cluster_serving.connectors.slot.shared import SharedSlot
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.generations import CANARY, DIVIDED, SERVING, Generation, Generations
from cluster_serving.protocol.keys import JOBS_KEY, JobKeys
from cluster_serving.protocol.slots import SILENT_AFTER_S, SlotReport, read_reports
from tests.support.fixtures.redis_server import RedisServer
from tests.support.fixtures.waiting import wait_until


def test_a_full_redis_takes_the_limits(db, job):
    """Only the job can make room again, so the job has to start."""
    publish_limits(db, RedisOptions("", job, max_queue_length=5, payload_folder="/somewhere"))
    db.config_set("maxmemory", 1)
    try:
        publish_limits(db, RedisOptions("", job, result_ttl_s=7, max_queue_length=6))
    finally:
        db.config_set("maxmemory", 0)
    assert db.hgetall(JobKeys(job).limits) == {b"resultTtl": b"7", b"maxQueueLength": b"6"}
    db.delete(JobKeys(job).limits)


def test_a_full_redis_takes_reports(db, job):
    reporter = SlotReporter(db, RedisOptions("", job, version="20", numbered=True), "start-1", 3)
    db.config_set("maxmemory", 1)
    try:
        reporter.loading()
        reporter.ready(SlotReport("", "", engine="test"))
    finally:
        db.config_set("maxmemory", 0)
    (report,) = read_reports(db.hgetall(JobKeys(job).slots()))
    assert (report.index, report.submission, report.state, report.engine) == (3, "start-1", "ready", "test")
    assert (report.version, report.numbered) == ("20", True)
    reporter.close()
    assert db.srem(JOBS_KEY, job)
    db.delete(JobKeys(job).slots(), JobKeys(job).limits, JobKeys(job).generations)


def test_a_report_waits_for_redis(tmp_path_factory, job):
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.stop()
    with redis.Redis(port=server.port) as client:
        reporter = SlotReporter(client, RedisOptions("", job), "start-1", 0)
        thread = threading.Thread(target=reporter.loading)
        thread.start()
        server.start()
        thread.join(30)
        reporter.close()
        (report,) = read_reports(client.hgetall(JobKeys(job).slots()))
    server.stop()
    assert report.state == "loading"


def test_what_a_job_has_written_once_comes_back_when_redis_was_emptied(db, job, monkeypatch):
    monkeypatch.setattr(reporting, "HEARTBEAT_S", 0.05)
    options = RedisOptions("", job, max_queue_length=7)
    reporter = SlotReporter(db, options, "start-1", 1)
    reporter.secret = ("secret", "salt")
    reporter.loading()
    reporter.ready(SlotReport("", "", engine="test"))
    reader = StreamReader(db, job, "c", 60_000)
    create_group(db, job)
    db.flushdb()
    wait_until(lambda: db.hget(JobKeys(job).limits, "maxQueueLength") == b"7")
    (report,) = read_reports(db.hgetall(JobKeys(job).slots()))
    assert (report.index, report.submission, report.state, report.engine) == (1, "start-1", "ready", "test")
    assert db.sismember(JOBS_KEY, job)
    assert db.hgetall(JobKeys(job).secret) == {b"secret": b"secret", b"salt": b"salt"}
    reader.read(1, None)
    assert db.exists(*JobKeys(job).streams) == 3
    # An operator may remove the secret once the model is loaded; only a Redis that has lost all gets it again.
    db.delete(JobKeys(job).secret, JobKeys(job).limits)
    wait_until(lambda: db.exists(JobKeys(job).limits))
    assert not db.exists(JobKeys(job).secret)
    reporter.close()
    db.delete(*JobKeys(job).streams, JobKeys(job).slots(), JobKeys(job).limits, JobKeys(job).generations)
    db.srem(JOBS_KEY, job)


def test_a_slot_that_another_start_has_replaced_writes_no_more(db, job, monkeypatch):
    monkeypatch.setattr(reporting, "HEARTBEAT_S", 0.05)
    old = SlotReporter(db, RedisOptions("", job), "start-1", 1)
    old.loading()
    wait_until(lambda: db.exists(JobKeys(job).generations))
    record = Generation(2, SERVING).to_json()
    write_hash(db, JobKeys(job).generations, {"2": record, "last": "2"}, replace=True)
    db.delete(JobKeys(job).slots())
    old._thread.join(30)
    assert not old._thread.is_alive()
    assert not db.exists(JobKeys(job).slots())
    db.delete(JobKeys(job).slots(), JobKeys(job).limits, JobKeys(job).generations)
    db.srem(JOBS_KEY, job)


def state_of(db, job):
    seconds, _ = db.time()
    (report,) = read_reports(db.hgetall(JobKeys(job).slots()), seconds)
    return report.state


def beat(db, job):
    return float(db.hget(JobKeys(job).slots(), "0:beat").split()[1])


@pytest.fixture
def slot(db, job, monkeypatch):
    """Starts attempts at the first slot of one submission."""
    monkeypatch.setattr(reporting, "HEARTBEAT_S", 0.05)
    reporters = []

    def start():
        reporters.append(SlotReporter(db, RedisOptions("", job), "start-1", 0))
        reporters[-1].loading()
        return reporters[-1]

    yield start
    for reporter in reporters:
        reporter.close()
    db.delete(JobKeys(job).slots(), JobKeys(job).limits, JobKeys(job).generations)
    db.srem(JOBS_KEY, job)


def test_a_slot_that_gives_no_heartbeat_is_silent(db, job, slot):
    reporter = slot()
    reporter.ready(SlotReport("", "", engine="test"))
    seconds, _ = db.time()
    assert seconds - 30 < beat(db, job) <= seconds
    assert state_of(db, job) == "ready"
    first = beat(db, job)
    wait_until(lambda: beat(db, job) > first)
    reporter.close()
    attempt = read_reports(db.hgetall(JobKeys(job).slots()))[0].attempt
    db.hset(JobKeys(job).slots(), "0:beat", f"{attempt} {seconds - SILENT_AFTER_S - 1}")
    assert state_of(db, job) == "silent"
    # A stopped or loading slot is not expected to give any.
    for state in ("stopped", "loading"):
        db.hset(JobKeys(job).slots(), "0", SlotReport("start-1", state, attempt=attempt).to_json())
        assert state_of(db, job) == state


def test_an_attempt_that_another_one_has_replaced_reports_nothing_more(db, job, slot):
    """As a process that Flink has given up, and that goes on loading its model."""
    orphan = slot()
    slot().ready(SlotReport("", "", engine="new"))
    orphan.ready(SlotReport("", "", engine="orphan"))
    orphan._thread.join(30)
    assert not orphan._thread.is_alive()
    (report,) = read_reports(db.hgetall(JobKeys(job).slots()))
    assert (report.engine, state_of(db, job)) == ("new", "ready")


def test_a_heartbeat_of_another_attempt_does_not_count(db, job, slot):
    reporter = slot()
    reporter.ready(SlotReport("", "", engine="test"))
    reporter.close()
    seconds, _ = db.time()
    db.hset(JobKeys(job).slots(), "0:beat", f"another {seconds}")
    assert state_of(db, job) == "silent"


def test_a_thread_whose_slot_flink_does_not_run_any_more_reports_nothing(db, job, slot, monkeypatch):
    monkeypatch.setattr(ticks, "STALE_S", 0.2)
    shared = SharedSlot.of(RedisOptions("", job).name, 0)
    source = shared.ticks
    source.note()
    reporter = slot()
    reporter.ready(SlotReport("", "", engine="test"))
    wait_until(lambda: source.stale)
    db.hdel(JobKeys(job).slots(), "0:beat")
    time.sleep(0.3)
    assert not db.hexists(JobKeys(job).slots(), "0:beat")
    source.note()
    wait_until(lambda: db.hexists(JobKeys(job).slots(), "0:beat"))


def test_the_description_of_a_model_outlives_its_slot(db, job):
    for submission in ("start-1", "start-2"):
        reporter = SlotReporter(db, RedisOptions("", job), submission, 0)
        reporter.loading()
        (report,) = read_reports(db.hgetall(JobKeys(job).slots()))
        assert (report.submission, report.state) == (submission, "loading")
        reporter.ready(SlotReport("", "", engine="test"))
        reporter.close()
    assert report.engine == "test"
    db.delete(JobKeys(job).slots(), JobKeys(job).limits, JobKeys(job).generations)
    db.srem(JOBS_KEY, job)


@contextmanager
def canary(db, job):
    """Reporters of a slot that serves, as generation 4, and of a canary, as generation 5; and both generations."""
    roles = {"4": Generation(4, SERVING, "start-1"), "5": Generation(5, CANARY, "start-2", share=20)}
    fields = {number: each.to_json() for number, each in roles.items()} | {"last": "5"}
    write_hash(db, JobKeys(job).generations, fields)
    reporters = [SlotReporter(db, RedisOptions("", job, generation=n), f"start-{n - 3}", 0) for n in (4, 5)]
    try:
        for reporter in reporters:
            reporter.loading()
            reporter.ready(SlotReport("", "", engine="test"))
        yield reporters, {each.number: each for each in roles.values()}
    finally:
        for reporter in reporters:
            reporter.close()
        db.srem(JOBS_KEY, job)
        db.delete(JobKeys(job).slots(), JobKeys(job).slots(5), JobKeys(job).limits, JobKeys(job).generations)


def test_counters_that_came_first_do_not_keep_lost_generations_away(db, job, monkeypatch):
    monkeypatch.setattr(reporting, "HEARTBEAT_S", 0.05)
    with canary(db, job) as (reporters, roles):
        wait_until(lambda: all(reporter._generations for reporter in reporters))
        db.delete(JobKeys(job).generations, JobKeys(job).slots(), JobKeys(job).slots(5))
        # As the source does for each request during a canary.
        db.hincrby(JobKeys(job).generations, DIVIDED, 1)
        wait_until(lambda: Generations.read(db.hgetall(JobKeys(job).generations)).all == roles)
        wait_until(lambda: db.hexists(JobKeys(job).slots(), "0") and db.hexists(JobKeys(job).slots(5), "0"))


def test_a_redis_that_loses_its_data_again_and_again_keeps_the_reports_of_two_generations_apart(db, job, monkeypatch):
    """Whatever a slot was writing at that moment."""
    monkeypatch.setattr(reporting, "HEARTBEAT_S", 0.002)

    def submissions():
        return [[report.submission for report in read_reports(db.hgetall(JobKeys(job).slots(n)))] for n in (None, 5)]

    with canary(db, job) as (reporters, _):
        for number in range(2000):
            db.delete(JobKeys(job).generations, JobKeys(job).slots(), JobKeys(job).slots(5))
            time.sleep(number % 10 / 2500)
        wait_until(lambda: submissions() == [["start-1"], ["start-2"]])
        assert all(reporter._thread.is_alive() for reporter in reporters)


def test_generations_that_the_source_has_read_last_are_written_again(db, job, monkeypatch):
    monkeypatch.setattr(reporting, "HEARTBEAT_S", 0.05)
    shared = SharedSlot.of(RedisOptions("", job).name, 0)
    source = shared.ticks
    reporter = SlotReporter(db, RedisOptions("", job), "start-1", 0)
    try:
        reporter.loading()
        record = Generation(2, CANARY, "start-2").to_json().encode()
        source.generations = {b"1": Generation(1, SERVING, "start-1").to_json().encode(), b"2": record, b"last": b"2"}
        db.delete(JobKeys(job).generations)
        wait_until(lambda: db.hget(JobKeys(job).generations, "2") == record)
    finally:
        reporter.close()
        db.srem(JOBS_KEY, job)
        db.delete(JobKeys(job).slots(), JobKeys(job).limits, JobKeys(job).generations)


def test_a_slot_counts_its_restarts_and_keeps_the_error_of_the_attempt_before(db, job):
    def attempt(submission):
        reporter = SlotReporter(db, RedisOptions("", job), submission, 0)
        reporter.loading()
        (report,) = read_reports(db.hgetall(JobKeys(job).slots()))
        return reporter, report

    try:
        first, report = attempt("a")
        assert (report.restarts, report.error) == (0, None)
        first.failed(ModelError.code, "no such file")
        second, report = attempt("a")
        assert (report.restarts, report.state, report.error) == (1, "loading", "no such file")
        assert report.has_failed
        second.ready(SlotReport("", ""))
        third, report = attempt("a")
        assert (report.restarts, report.has_failed) == (2, False)
        third.failed(ModelError.code, "no such file")
        fourth, report = attempt("b")
        assert (report.restarts, report.has_failed) == (0, False)
        for reporter in (first, second, third, fourth):
            reporter.close()
    finally:
        db.srem(JOBS_KEY, job)
        db.delete(JobKeys(job).slots(), JobKeys(job).limits, JobKeys(job).generations)


class Model:
    """A model whose records share calls until `end`."""

    def __init__(self, content=""):
        self.content = content
        self.ended = ""

    def end(self, reason):
        self.ended = reason


@pytest.fixture
def slots(db, job, monkeypatch):
    """Starts slots, each with a model."""
    monkeypatch.setattr(reporting, "HEARTBEAT_S", 0.05)
    reporters = []

    def start(index, submission="start-1", content=""):
        reporter = SlotReporter(db, RedisOptions("", job), submission, index)
        reporters.append(reporter)
        reporter.loading()
        reporter.sharing = Model(content)
        reporter.ready(SlotReport("", "", engine="test"))
        return reporter

    yield start
    for reporter in reporters:
        reporter.close()
    keys = JobKeys(job)
    db.delete(keys.slots(), keys.limits, keys.generations, keys.one_by_one)
    db.srem(JOBS_KEY, job)


def test_all_slots_of_a_start_compute_one_record_a_call_once_one_has_found_a_reason(db, job, slots):
    found, other, another_start = slots(0), slots(1), slots(2, "start-2", "a-digest")
    assert found.marks() == {}
    found.sharing.ended = "rows differ"
    found.ready(SlotReport("", "", engine="test", one_by_one="rows differ"))
    wait_until(lambda: other.sharing.ended == "rows differ")
    # Also of one that gets no requests.
    wait_until(
        lambda: (
            [report.one_by_one for report in read_reports(db.hgetall(JobKeys(job).slots()))]
            == ["rows differ", "rows differ", ""]
        )
    )
    assert found.marks() == {"start-1": "rows differ"}
    assert another_start.sharing.ended == ""


def test_the_content_of_a_model_is_marked_once_it_is_known(db, job, slots):
    slot = slots(0)
    slot.sharing.ended = "rows differ"
    wait_until(slot.marks)
    slot.sharing.content = "a-digest"
    wait_until(lambda: len(slot.marks()) == 2)
    assert slot.marks() == {"start-1": "rows differ", "a-digest": "rows differ"}
    # A mark is written once.
    slot.sharing.ended = "labels differ"
    slot.ready(SlotReport("", "", engine="test"))
    assert slot.marks()["a-digest"] == "rows differ"


def test_a_slot_of_another_start_knows_its_model_by_its_content(db, job, slots):
    found, other = slots(0, "start-1", "a-digest"), slots(1, "start-2")
    found.sharing.ended = "rows differ"
    wait_until(lambda: len(found.marks()) == 2)
    # It hashes its files only now.
    other.sharing.content = "a-digest"
    wait_until(lambda: other.sharing.ended == "rows differ")


def test_a_mark_that_redis_has_lost_is_written_again(db, job, slots):
    slot = slots(0, content="a-digest")
    slot.sharing.ended = "rows differ"
    wait_until(lambda: len(slot.marks()) == 2)
    db.delete(JobKeys(job).one_by_one)
    wait_until(lambda: len(slot.marks()) == 2)
