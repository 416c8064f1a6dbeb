"""Requests that are given up, on a real Redis."""

from cluster_serving.client.errors import PoisonRequest
from cluster_serving.client.protocol import dead_letters_key, result_key
from cluster_serving.connectors.dead_letter import bury
from cluster_serving.connectors.stream import StreamReader, create_group


def test_a_dead_letter_is_kept_and_its_client_is_told(db, job):
    create_group(db, job)
    db.xadd(job, {"uri": "a", "data": b"payload"})
    (entry,) = StreamReader(db, job, "c", 60_000).read(1, None)
    bury(db, job, 60, entry, PoisonRequest("it kills"))
    ((_, letter),) = db.xrange(dead_letters_key(job))
    assert (letter[b"uri"], letter[b"data"], letter[b"code"]) == (b"a", b"payload", b"POISON_REQUEST")
    assert db.hget(result_key(job, "a"), "error") == b"it kills"
    assert db.xlen(job) == 0
    db.delete(dead_letters_key(job))
