"""Answers and dead letters, on a real Redis."""

import pytest
import redis

from cluster_serving.client.announcements import replies_in
from cluster_serving.connectors.slot.answer import MAX_PUBLISHED_BYTES, Answer, dead_letter, write_answers
from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.protocol.dead_letters import DeadLetter
from cluster_serving.protocol.errors import PoisonRequest
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.results import encode_error
from tests.support.fixtures.redis_server import on_each_server


def test_result_expiry_ack_delete_and_wake_up_happen_together(db, job):
    create_group(db, job)
    db.xadd(job, {"uri": "a", "data": b"x"})
    db.xadd(job, {"uri": "b", "data": b"x", "reply_to": "my-channel"})
    entries = StreamReader(db, job, "c", 60_000).read(2, None)
    db.hset(JobKeys(job).result("a"), mapping={"value": "old", "error": "of an earlier request"})
    with db.pubsub() as listener:
        listener.subscribe(JobKeys(job).result("a"), "my-channel")
        assert [listener.get_message(timeout=5)["type"] for _ in range(2)] == ["subscribe"] * 2
        write_answers(db, job, 60, [Answer(entry, {"value": entry.uri}) for entry in entries], "7")
        received = [listener.get_message(timeout=5) for _ in range(2)]
    messages = {(message["channel"].decode(), message["data"].decode()) for message in received}
    assert messages == {(JobKeys(job).result("a"), "a"), ("my-channel", "b")}
    assert db.hgetall(JobKeys(job).result("a")) == {b"value": b"a", b"version": b"7"}
    assert 0 < db.ttl(JobKeys(job).result("b")) <= 60
    assert db.xlen(job) == 0
    assert db.xpending(job, GROUP)["pending"] == 0
    assert db.getdel(JobKeys(job).answered) == b"2"


def test_an_answered_request_is_not_answered_again(db, job):
    create_group(db, job)
    for uri in "ab":
        db.xadd(job, {"uri": uri, "data": b"x"})
    entries = StreamReader(db, job, "c", 60_000).read(2, None)
    assert write_answers(db, job, 60, [Answer(entries[0], {"value": "first"})]) == 1
    # A slot that was silent answers late: the client has taken the result meanwhile.
    db.delete(JobKeys(job).result("a"))
    assert write_answers(db, job, 60, [Answer(entry, {"value": "second"}) for entry in entries]) == 1
    assert not db.exists(JobKeys(job).result("a"))
    assert db.hgetall(JobKeys(job).result("b")) == {b"value": b"second"}


def test_a_channel_hears_of_a_batch_at_once(db, job):
    create_group(db, job)
    for uri in "abc":
        db.xadd(job, {"uri": uri, "data": b"x", "reply_to": "one-channel"})
    entries = StreamReader(db, job, "c", 60_000).read(3, None)
    with db.pubsub() as listener:
        listener.subscribe("one-channel")
        listener.get_message(timeout=5)
        write_answers(db, job, 60, [Answer(entry, {"value": entry.uri}) for entry in entries])
        assert listener.get_message(timeout=5)["data"] == b"a\nb\nc"
        assert listener.get_message(timeout=0.1) is None


def test_results_are_published_to_clients_that_ask_for_them_unless_they_are_large(db, job):
    create_group(db, job)
    for uri, wish in ((b"a", "result"), (b"b\r\n\xff", "result"), (b"c", "result"), (b"d", "")):
        db.xadd(job, {"uri": uri, "data": b"x", "reply_to": "one-channel", "reply_with": wish})
    entries = StreamReader(db, job, "c", 60_000).read(4, None)
    values = {"a": "", "c": b"x" * (MAX_PUBLISHED_BYTES + 1)}
    with db.pubsub() as listener:
        listener.subscribe("one-channel")
        listener.get_message(timeout=5)
        answers = [Answer(entry, {"value": values.get(entry.uri, b"\r\n*1\0"), "code": "X"}) for entry in entries]
        write_answers(db, job, 60, answers)
        lines, arrays = (listener.get_message(timeout=5)["data"] for _ in range(2))
    assert replies_in(lines) == {b"d": {}}
    assert replies_in(arrays) == {
        b"a": {b"value": b"", b"code": b"X"},
        b"b\r\n\xff": {b"value": b"\r\n*1\0", b"code": b"X"},
        b"c": {},
    }
    assert db.hget(JobKeys(job).result("a"), "code") == b"X"
    assert db.hlen(JobKeys(job).result("c")) == 2


@on_each_server
def test_a_full_redis_is_emptied_by_answering(db, job):
    create_group(db, job)
    for uri in "abc":
        db.xadd(job, {"uri": uri, "data": b"x"})
    entries = StreamReader(db, job, "c", 60_000).read(3, None)
    db.config_set("maxmemory", 1)
    try:
        create_group(db, job)
        write_answers(db, job, 60, [Answer(entry, {"value": entry.uri, "code": "X"}) for entry in entries])
    finally:
        db.config_set("maxmemory", 0)
    assert db.xlen(job) == 0
    assert db.xpending(job, GROUP)["pending"] == 0
    assert db.hgetall(JobKeys(job).result("c")) == {b"value": b"c", b"code": b"X"}
    assert db.ttl(JobKeys(job).result("a")) > 0
    assert db.getdel(JobKeys(job).answered) == b"3"


def test_a_batch_of_thousands(db, job):
    create_group(db, job)
    with db.pipeline(transaction=False) as pipeline:
        for number in range(2500):
            # The last two are of one uri.
            pipeline.xadd(job, {"uri": str(min(number, 2498)), "data": b"x"})
        pipeline.execute()
    entries = StreamReader(db, job, "c", 60_000).read(3000, None)
    answers = [Answer(entry, {"value": entry.id, f"only{index}": ""}) for index, entry in enumerate(entries)]
    assert write_answers(db, job, 60, answers) == 2500
    assert db.xlen(job) == 0
    assert db.xpending(job, GROUP)["pending"] == 0
    assert db.hgetall(JobKeys(job).result("2498")) == {b"value": entries[-1].id, b"only2499": b""}


@pytest.fixture
def entry(db, job):
    create_group(db, job)
    db.xadd(
        job, {"uri": "a", "data": b"payload", "serde": "arrow", "reply_to": "me", "deadline": "5000", "version": "2"}
    )
    yield StreamReader(db, job, "c", 60_000).read(1, None)[0]
    db.delete(JobKeys(job).dead_letters, JobKeys(job).attempts)


def test_each_record_that_is_given_up_has_a_dead_letter(db, job, entry):
    letters = [DeadLetter.of(entry._replace(uri=f"a#{index}"), PoisonRequest(f"no {index}")) for index in (1, 3)]
    answers = [Answer(entry, encode_error(PoisonRequest("no")), letters)]
    assert write_answers(db, job, 60, answers) == 1
    found = [(letter[b"uri"], letter[b"error"]) for _, letter in db.xrange(JobKeys(job).dead_letters)]
    assert found == [(b"a#1", b"no 1"), (b"a#3", b"no 3")]


def test_a_dead_letter_is_kept_and_its_client_is_told(db, job, entry):
    dead_letter(db, job, 60, entry, PoisonRequest("it kills"), "Traceback")
    ((_, letter),) = db.xrange(JobKeys(job).dead_letters)
    assert (letter[b"uri"], letter[b"data"], letter[b"code"]) == (b"a", b"payload", b"POISON_REQUEST")
    parsed = DeadLetter.parse(letter)
    assert (parsed.request, parsed.error, parsed.traceback) == (entry, "it kills", "Traceback")
    assert db.hget(JobKeys(job).native_result("a"), "error") == b"it kills"
    assert db.xlen(job) == 0


def test_texts_that_are_no_unicode_are_told_too(db, job, entry):
    """A handler quotes its input, which JSON of the original can make of lone surrogates."""
    dead_letter(db, job, 60, entry, PoisonRequest("unknown word \ud800"), "ValueError: \ud800")
    letter = DeadLetter.parse(db.xrange(JobKeys(job).dead_letters)[0][1])
    assert (letter.error, letter.traceback) == (r"unknown word \ud800", r"ValueError: \ud800")
    assert db.hget(JobKeys(job).native_result("a"), "error") == rb"unknown word \ud800"


def test_letter_and_answer_are_one_step(db, job, entry):
    with db.monitor() as monitor:
        with redis.Redis(**db.connection_pool.connection_kwargs) as other:
            dead_letter(other, job, 60, entry, PoisonRequest("it kills"))
        seen = []
        while not seen or seen[-1] != "PUBLISH":
            seen.append(monitor.next_command()["command"].split()[0])
    # A script is one step.
    assert seen[-9] in ("EVAL", "EVALSHA")
    assert seen[-8:] == ["XACK", "EXPIRE", "HSET", "EXPIRE", "XADD", "XDEL", "INCRBY", "PUBLISH"]


@on_each_server
def test_a_full_redis_takes_the_letter_too(db, job, entry):
    db.config_set("maxmemory", 1)
    try:
        dead_letter(db, job, 60, entry, PoisonRequest("it kills"))
    finally:
        db.config_set("maxmemory", 0)
    ((_, letter),) = db.xrange(JobKeys(job).dead_letters)
    assert DeadLetter.parse(letter).request == entry
    assert db.hget(JobKeys(job).native_result("a"), "code") == b"POISON_REQUEST"


def test_a_large_payload_is_not_kept(db, job, entry):
    large = entry.__class__(entry.id, "a", bytes(2 << 20))
    letter = DeadLetter.of(large, PoisonRequest("it kills"))
    assert letter.kept
    parsed = DeadLetter.parse({key.encode(): _raw(value) for key, value in letter.fields().items()})
    assert (parsed.size, parsed.request.data, parsed.kept) == (2 << 20, b"", False)


def _raw(value):
    return value if isinstance(value, bytes) else str(value).encode()
