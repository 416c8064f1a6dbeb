"""Requests by client."""

import pytest

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.stages import clients
from cluster_serving.connectors.stages.clients import MOST, Clients
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.figures.metrics import CLIENT_REQUESTS
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures import slots


@pytest.fixture
def slot(db, job):
    yield slots.make(db, RedisOptions("", job))
    db.delete(JobKeys(job).slot_stats)


def by_client(slot):
    return {name.partition(":")[2]: count for name, count in slot.counts.take().items()}


def sent(count, origin="", reply_to=""):
    return [Entry(b"1-0", "a", b"", origin=origin, reply_to=reply_to)] * count


def test_the_busiest_clients_have_their_name(slot):
    stage = Clients(slot)
    entries = [*sent(9, "alice"), *sent(5, reply_to="x|reply|7f3a.1"), *sent(4, reply_to="x|reply|7f3a.2")]
    entries += [*sent(2), *sent(1, "bob"), *sent(1, "carol")]
    assert stage.admit(entries) == entries
    stage.begin()
    # Two connections of a process are a client; those that wait for no message do not say who they are.
    assert by_client(slot) == {"alice": 9, "7f3a": 9, "unnamed": 2, "other": 2}
    stage.admit(sent(1, "bob"))
    stage.close()
    assert by_client(slot) == {"bob": 1}


def test_the_number_of_names_in_redis_is_bounded(slot, db, job, monkeypatch):
    monkeypatch.setattr(clients, "_INTERVAL_S", 0)
    stage = Clients(slot)
    for number in range(3 * MOST):
        stage.admit([*sent(2, "always"), *sent(1, f"once-{number}")])
        stage.begin()
        for name, count in slot.counts.take().items():
            db.hincrby(JobKeys(job).slot_stats, f"1/0/{name}", count)
    names = {field.decode().rpartition(":")[2] for field in db.hkeys(JobKeys(job).slot_stats)}
    # The latest names, and one that has been busy all the time.
    assert names == {"always", *(f"once-{number}" for number in range(2 * MOST + 1, 3 * MOST))}
    assert int(db.hget(JobKeys(job).slot_stats, f"1/0/{CLIENT_REQUESTS.name}:always")) == 6 * MOST


def test_a_client_may_call_itself_anything(slot, db, job):
    """Redis takes no lone surrogates, and a name of a megabyte helps nobody."""
    stage = Clients(slot)
    stage.admit([*sent(1, reply_to="\udcff"), *sent(2, reply_to="x" * (1 << 20))])
    stage.begin()
    named = by_client(slot)
    assert named == {"\\udcff": 1, "x" * 64: 2}
    db.hset(JobKeys(job).slot_stats, mapping=named)


def test_copies_for_a_shadow_are_no_requests_of_clients(db, job):
    slot = slots.make(db, RedisOptions("", job, shadow=True))
    stage = Clients(slot)
    stage.admit(sent(3, "alice"))
    stage.close()
    assert by_client(slot) == {}
