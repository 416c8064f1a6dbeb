"""Scripts of which Redis refuses a command: nothing is left that must not be alone."""

import re
from contextlib import suppress

import pytest
import redis

from cluster_serving.connectors.slot.answer import Answer, write_answers
from cluster_serving.connectors.slot.redis import write_hash
from cluster_serving.protocol import scripts
from cluster_serving.protocol.dead_letters import DeadLetter
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.generations import SERVING, Generation
from cluster_serving.protocol.keys import GROUP, JobKeys
from cluster_serving.protocol.scripts import Call, call

NAME, PASSWORD = "restricted", "secret"


def names(script):
    """Return the commands of a script."""
    return sorted(set(re.findall(r"(?:call|refused)\('(\w+)'", script.text)))


@pytest.fixture
def without(redis_server, db):
    """Makes clients of a user that may use all commands but one."""
    clients = []

    def without(command):
        db.execute_command("ACL", "SETUSER", NAME, "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all", f"-{command}")
        clients.append(redis.Redis(port=redis_server.port, username=NAME, password=PASSWORD, decode_responses=True))
        return clients[-1]

    yield without
    for client in clients:
        client.close()
    db.execute_command("ACL", "DELUSER", NAME)


def expires(db, key):
    return not db.exists(key) or db.ttl(key) >= 0


def attempt(action):
    with suppress(redis.RedisError):
        action()


def queued(db, job, **fields):
    with suppress(redis.ResponseError):
        db.xgroup_create(job, GROUP, id="0", mkstream=True)
    return db.xadd(job, {"uri": "u", "data": "x", "serde": "arrow", **fields})


@pytest.mark.parametrize("command", names(scripts.HOLD))
def test_a_lock_has_an_expiry(without, db, job, command):
    key = JobKeys(job).command
    client = without(command)
    attempt(lambda: call(client, Call(scripts.HOLD, [key], ["token", 60, "me"])))
    assert expires(db, key)
    call(db, Call(scripts.HOLD, [key], ["token", 60, "me"]))
    assert call(db, Call(scripts.HOLD, [key], ["other", 60, "you"])) in (b"me", None)
    attempt(lambda: call(client, Call(scripts.HOLD, [key], ["token", 60, "me"])))
    assert expires(db, key)


def test_a_lock_without_expiry_that_another_version_has_left_is_free(db, job):
    db.hset(JobKeys(job).command, mapping={"token": "dead", "holder": "a command of before"})
    assert call(db, Call(scripts.HOLD, [JobKeys(job).command], ["token", 60, "me"])) is None
    assert db.hget(JobKeys(job).command, "holder") == b"me"


@pytest.mark.parametrize("command", names(scripts.PUT_CONTROLLER))
def test_the_state_of_a_controller_has_an_expiry(without, db, job, command):
    client = without(command)
    attempt(lambda: call(client, Call(scripts.PUT_CONTROLLER, [JobKeys(job).controller], ["1", 15, "host", "h"])))
    assert expires(db, JobKeys(job).controller)


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize("command", names(scripts.ANSWER))
def test_a_request_is_pending_or_answered(without, db, job, command, in_pieces):
    wish = {"reply_with": "pieces"} if in_pieces else {}
    ids = [queued(db, job, **wish) for _ in range(2)]
    db.xreadgroup(GROUP, "slot", {job: ">"})
    entries = [Entry(entry_id, f"u{number}", b"x", b"arrow") for number, entry_id in enumerate(ids)]
    entries = [entry._replace(reply_with=b"pieces" if in_pieces else b"") for entry in entries]
    answers = [Answer(entry, {"value": "1"}) for entry in entries]
    client = without(command)
    attempt(lambda: write_answers(client, job, 60, answers))
    key = JobKeys(job).pieces if in_pieces else JobKeys(job).native_result
    waiting = {one["message_id"] for one in db.xpending_range(job, GROUP, "-", "+", 10)}
    for entry in entries:
        assert entry.id in waiting or db.exists(key(entry.uri))
    # Once the command is allowed, the same answers are written as a whole.
    if waiting:
        assert write_answers(db, job, 60, answers) == len(waiting)
    for entry in entries:
        assert db.ttl(key(entry.uri)) > 0


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize("command", names(scripts.WITHDRAW))
def test_a_request_that_is_withdrawn_waits_or_has_its_answer(without, db, job, command, in_pieces):
    entry_id = queued(db, job, **({"reply_with": "pieces"} if in_pieces else {}))
    key = JobKeys(job).pieces("u") if in_pieces else JobKeys(job).native_result("u")
    keys = [job, f"{job}:limits", JobKeys(job).native_result("u"), "original", JobKeys(job).pieces("u")]
    arguments = [GROUP, entry_id, "u", 60, "code", "CANCELLED"]
    client = without(command)
    attempt(lambda: call(client, Call(scripts.WITHDRAW, keys, arguments)))
    assert db.xrange(job, entry_id, entry_id) or db.exists(key)
    assert expires(db, key)


@pytest.mark.parametrize("command", names(scripts.ADD_PIECES))
def test_pieces_have_an_expiry(without, db, job, command):
    entry_id = queued(db, job)
    db.xreadgroup(GROUP, "slot", {job: ">"})
    key = JobKeys(job).pieces("u")
    client = without(command)
    piece = [entry_id, "u", 0, 1, 2, "value", "1"]
    attempt(lambda: call(client, Call(scripts.ADD_PIECES, [key, job], [GROUP, 60, *piece])))
    assert expires(db, key)


@pytest.mark.parametrize("command", names(scripts.ADD))
def test_a_request_that_is_refused_is_not_queued(without, db, job, command):
    db.hset(JobKeys(job).native_result("u"), "value", "of before")
    keys = [f"{job}:limits", job, f"{job}:high", f"{job}:low", JobKeys(job).native_result("u")]
    client = without(command)
    replies = []
    attempt(lambda: replies.extend(call(client, Call(scripts.ADD, keys, [2, 2, "uri", "u"]))))
    taken = bool(replies) and isinstance(replies[0], str)
    assert (db.xlen(job), db.exists(keys[-1])) == ((1, 0) if taken else (0, 1))


@pytest.mark.parametrize("command", names(scripts.REQUEUE))
def test_a_dead_letter_is_not_lost(without, db, job, command):
    letter = DeadLetter.of(Entry(b"1-0", "u", b"x", b"arrow"), ServingError("reason"), "")
    letter_id = db.xadd(JobKeys(job).dead_letters, letter.fields())
    client = without(command)
    keys = [JobKeys(job).dead_letters, job, JobKeys(job).native_result("u"), JobKeys(job).pieces("u")]
    attempt(lambda: call(client, Call(scripts.REQUEUE, keys, [letter_id, "uri", "u"])))
    assert db.xlen(JobKeys(job).dead_letters) + db.xlen(job) >= 1


@pytest.mark.parametrize("command", names(scripts.SWITCH))
def test_roles_and_reports_of_a_switch_change_together(without, db, job, command):
    old, new = Generation(1, SERVING), Generation(2, SERVING)
    db.hset(JobKeys(job).generations, mapping={"1": old.to_json(), "2": new.to_json()})
    db.hset(JobKeys(job).slots(), "0", "one")
    db.hset(JobKeys(job).slots(2), "0", "two")
    keys = [JobKeys(job).generations, JobKeys(job).slots(), JobKeys(job).slots(2), JobKeys(job).slots(1)]
    before = db.hgetall(keys[0])
    client = without(command)
    attempt(lambda: call(client, Call(scripts.SWITCH, keys, ["2", "serving", "1", "retiring"])))
    if db.hget(keys[1], "0") == b"one":
        assert db.hgetall(keys[0]) == before


@pytest.mark.parametrize("how", ["all", "some"])
@pytest.mark.parametrize("command", names(scripts.PUT_FIELDS))
def test_fields_are_replaced_or_stay(without, db, job, command, how):
    key = f"{job}:limits"
    db.hset(key, mapping={"a": "1", "b": "1"})
    client = without(command)
    attempt(lambda: write_hash(client, key, {"a": "2"}, replace=how == "all"))
    assert db.hget(key, "a") in (b"1", b"2")


@pytest.mark.parametrize("command", names(scripts.PUT_MEMBER))
def test_a_member_stays(without, db, job, command):
    db.sadd(job, "member")
    client = without(command)
    attempt(lambda: call(client, Call(scripts.PUT_MEMBER, [job], ["member"])))
    assert db.sismember(job, "member")
