"""Requests that are given up, on a real Redis."""

import json
import re

import pytest
import redis

from cluster_serving.connectors.answer import dead_letter
from cluster_serving.connectors.attempts import Attempts, noted
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.stream import StreamReader, create_group
from cluster_serving.protocol.dead_letters import DeadLetter
from cluster_serving.protocol.errors import PoisonRequest
from cluster_serving.protocol.keys import attempts_key, dead_letters_key, result_key


@pytest.fixture
def entry(db, job):
    create_group(db, job)
    db.xadd(job, {"uri": "a", "data": b"payload", "serde": "arrow", "reply_to": "me", "deadline": "5000"})
    yield StreamReader(db, job, "c", 60_000).read(1, None)[0]
    db.delete(dead_letters_key(job), attempts_key(job))


def test_a_dead_letter_is_kept_and_its_client_is_told(db, job, entry):
    dead_letter(db, job, 60, entry, PoisonRequest("it kills"), "Traceback")
    ((_, letter),) = db.xrange(dead_letters_key(job))
    assert (letter[b"uri"], letter[b"data"], letter[b"code"]) == (b"a", b"payload", b"POISON_REQUEST")
    found = DeadLetter.parse(letter)
    assert (found.request, found.error, found.traceback) == (entry, "it kills", "Traceback")
    assert db.hget(result_key(job, "a"), "error") == b"it kills"
    assert db.xlen(job) == 0


def test_letter_and_answer_are_one_step(db, job, entry):
    with db.monitor() as monitor:
        with redis.Redis(**db.connection_pool.connection_kwargs) as other:
            dead_letter(other, job, 60, entry, PoisonRequest("it kills"))
        seen = []
        while not seen or seen[-1] != "PUBLISH":
            seen.append(monitor.next_command()["command"].split()[0])
    # What a script does is one step.
    assert seen[-9] in ("EVAL", "EVALSHA")
    assert seen[-8:] == ["XACK", "DEL", "HSET", "EXPIRE", "XADD", "XDEL", "INCRBY", "PUBLISH"]


def test_a_full_redis_takes_the_letter_too(db, job, entry):
    db.config_set("maxmemory", 1)
    try:
        dead_letter(db, job, 60, entry, PoisonRequest("it kills"))
    finally:
        db.config_set("maxmemory", 0)
    ((_, letter),) = db.xrange(dead_letters_key(job))
    assert DeadLetter.parse(letter).request == entry
    assert db.hget(result_key(job, "a"), "code") == b"POISON_REQUEST"


def test_a_large_payload_is_not_kept(db, job, entry):
    large = entry.__class__(entry.id, "a", bytes(2 << 20))
    letter = DeadLetter.of(large, PoisonRequest("it kills"))
    assert letter.kept
    found = DeadLetter.parse({key.encode(): _raw(value) for key, value in letter.fields().items()})
    assert (found.size, found.request.data, found.kept) == (2 << 20, b"", False)


def test_the_exception_that_ends_an_attempt_is_noted(redis_server, db, job, entry):
    with pytest.raises(SystemExit), noted(RedisOptions(redis_server.url), job, [entry]):
        raise SystemExit("the model gave up")
    attempts = Attempts(db, job)
    assert attempts.last(entry).traceback.endswith("SystemExit: the model gave up\n")
    assert re.fullmatch(r"; the last was process \d+ on .*, at SystemExit: .*", str(attempts.last(entry)))
    attempts.begin(entry)
    assert re.fullmatch(r"; the last was process \d+ on \S+", str(attempts.last(entry)))
    attempts.forget(entry)
    assert str(attempts.last(entry)) == ""
    assert not db.exists(attempts_key(job))


def test_a_full_redis_takes_notes(redis_server, db, job, entry):
    """Or an interrupted request, which cannot be tried without, would be given up untried."""
    attempts = Attempts(db, job)
    db.config_set("maxmemory", 1)
    try:
        attempts.begin(entry)
        with pytest.raises(ValueError), noted(RedisOptions(redis_server.url), job, [entry, entry._replace(id=b"2-0")]):
            raise ValueError("interrupted")
    finally:
        db.config_set("maxmemory", 0)
    assert attempts.last(entry).traceback.endswith("ValueError: interrupted\n")
    assert attempts.last(entry._replace(id=b"2-0")).traceback
    assert db.ttl(attempts_key(job)) > 0


def test_entries_of_the_same_id_in_two_streams_are_told_apart(db, job, entry):
    attempts, other = Attempts(db, job), entry._replace(priority="high")
    attempts.begin(entry)
    assert str(attempts.last(other)) == ""
    attempts.begin(other)
    attempts.forget(entry)
    assert str(attempts.last(entry)) == ""
    assert str(attempts.last(other)) != ""


def test_notes_of_an_earlier_version_are_read_and_forgotten(db, job, entry):
    attempts = Attempts(db, job)
    note = {"host": "there", "process": 7, "time": 1.0, "traceback": "ValueError: old"}
    db.hset(attempts_key(job), entry.id, json.dumps(note))
    assert str(attempts.last(entry)) == "; the last was process 7 on there, at ValueError: old"
    attempts.begin(entry)
    assert attempts.last(entry).traceback == ""
    attempts.forget(entry)
    assert not db.exists(attempts_key(job))


def _raw(value):
    return value if isinstance(value, bytes) else str(value).encode()
