"""Notes on attempts at interrupted requests, on a real Redis."""

import re
from dataclasses import replace

import pytest

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.attempts import Attempts, noted
from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures.redis_server import on_each_server


@pytest.fixture
def entry(db, job):
    create_group(db, job)
    db.xadd(job, {"uri": "a", "data": b"payload", "serde": "arrow", "reply_to": "me", "deadline": "5000"})
    yield StreamReader(db, job, "c", 60_000).read(1, None)[0]
    db.delete(JobKeys(job).dead_letters, JobKeys(job).attempts)


def test_the_exception_that_ends_an_attempt_is_noted(redis_server, db, job, entry):
    with pytest.raises(SystemExit), noted(RedisOptions(redis_server.url, job), [entry]):
        raise SystemExit("the model gave up")
    attempts = Attempts(db, job)
    assert attempts.last(entry).traceback.endswith("SystemExit: the model gave up\n")
    assert re.fullmatch(r"; the last was process \d+ on .*, at SystemExit: .*", str(attempts.last(entry)))
    attempts.note([entry])
    assert re.fullmatch(r"; the last was process \d+ on \S+", str(attempts.last(entry)))
    attempts.forget(entry)
    assert str(attempts.last(entry)) == ""
    assert not db.exists(JobKeys(job).attempts)


@on_each_server
def test_a_full_redis_takes_notes(redis_server, db, job, entry):
    """Without a note an interrupted request is not tried, and would be given up untried."""
    attempts = Attempts(db, job)
    db.config_set("maxmemory", 1)
    try:
        attempts.note([entry])
        with pytest.raises(ValueError), noted(RedisOptions(redis_server.url, job), [entry, entry._replace(id=b"2-0")]):
            raise ValueError("interrupted")
    finally:
        db.config_set("maxmemory", 0)
    assert attempts.last(entry).traceback.endswith("ValueError: interrupted\n")
    assert attempts.last(entry._replace(id=b"2-0")).traceback
    assert db.ttl(JobKeys(job).attempts) > 0


def test_entries_of_the_same_id_in_two_streams_are_told_apart(db, job, entry):
    attempts, other = Attempts(db, job), entry._replace(priority="high")
    attempts.note([entry])
    assert str(attempts.last(other)) == ""
    attempts.note([other])
    attempts.forget(entry)
    assert str(attempts.last(entry)) == ""
    assert str(attempts.last(other)) != ""


def test_an_attempt_that_flink_has_ended_is_counted_as_a_stop(redis_server, db, job, entry, tmp_path):
    end = tmp_path / "cluster-serving-worker-1"
    end.write_text("stopped")
    attempts = Attempts(db, job, str(end))
    for stops in (1, 2):
        attempts.note([entry])
        assert (attempts.last(entry).stops, attempts.last(entry).crashed) == (stops, False)
    with pytest.raises(ValueError), noted(RedisOptions(redis_server.url, job), [entry]):
        raise ValueError("the worker shuts down")
    assert attempts.last(entry).stops == 2


def test_an_attempt_counts_once_it_has_ended_its_process(redis_server, db, job, entry):
    """Its slot may only have seemed dead. A process of the same number that has started since is another one."""
    attempts = Attempts(db, job)
    attempts.note([entry])
    assert attempts.last(entry).stops == 1
    with pytest.raises(ValueError), noted(RedisOptions(redis_server.url, job), [entry]):
        raise ValueError("the slot fails, and its process serves on")
    assert attempts.last(entry).stops == 0
    ended = replace(attempts.last(entry), traceback="", started=1)
    db.hset(JobKeys(job).attempts, f"{entry.priority}:{entry.id.decode()}", ended.to_json())
    assert attempts.last(entry).stops == 0


def test_the_records_of_an_attempt_are_one_attempt(db, job, entry):
    attempts = Attempts(db, job)
    attempts.note([entry])
    for record in range(3):
        attempts.note([entry], goes_on=True, record=record)
    assert (attempts.last(entry).record, attempts.last(entry).stops) == (2, 1)


def test_a_request_that_holds_up_all_processes_is_excused_a_few_times_only(db, job, entry):
    attempts = Attempts(db, job)
    for _ in range(10):
        attempts.note([entry])
    assert attempts.last(entry).stops == 3


def test_a_crash_after_an_attempt_does_not_convict_its_request(db, job, entry, tmp_path):
    """Another slot has taken it over meanwhile, and looks at the note when the process has crashed at its next one."""
    ends = [tmp_path / f"cluster-serving-worker-{number}" for number in (1, 2)]
    first, second = (Attempts(db, job, str(end)) for end in ends)
    first.note([entry])
    first.outlived(entry)
    ends[0].write_text("Fatal Python error: Segmentation fault")
    last = second.last(entry)
    assert (last.crashed, last.stops, last.traceback) == (False, 1, "")
    # The note of the slot that has it now stays.
    second.note([entry])
    first.outlived(entry)
    ends[1].write_text("Fatal Python error: Aborted")
    assert first.last(entry).crashed


def test_a_crash_convicts_no_request_that_was_computed_beside_others(db, job, entry, tmp_path):
    end = tmp_path / "cluster-serving-worker-1"
    end.write_text("Fatal Python error: Segmentation fault")
    attempts = Attempts(db, job, str(end))
    attempts.note([entry], alone=False)
    last = attempts.last(entry)
    assert (last.crashed, last.stops, last.traceback) == (False, 1, "")
    # The next attempt is another one.
    attempts.note([entry], alone=True)
    assert attempts.last(entry).crashed


def test_an_attempt_that_crashed_its_process_has_the_traceback_of_the_crash(db, job, entry, tmp_path):
    end = tmp_path / "cluster-serving-worker-1"
    end.write_text('Fatal Python error: Aborted\n\nCurrent thread:\n  File "m.py", line 1 in forward\n')
    attempts = Attempts(db, job, str(end))
    attempts.note([entry])
    last = attempts.last(entry)
    assert (last.crashed, last.stops) == (True, 0)
    assert last.traceback == 'Current thread:\n  File "m.py", line 1 in forward\nFatal Python error: Aborted'
    assert str(last).endswith(", at Fatal Python error: Aborted")
