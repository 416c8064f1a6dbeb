"""What the page /ui gets from its front end: figures by version, an hour of history, events, and dead letters."""

import asyncio

import httpx
import numpy as np
import pytest

from cluster_serving.client import InputQueue, OutputQueue
from cluster_serving.connectors.slot.answer import dead_letter
from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.frontend.models.history import KEPT_S, STEP_S, History
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.protocol import events
from cluster_serving.protocol.dead_letters import MAX_PAYLOAD_BYTES
from cluster_serving.protocol.errors import PoisonRequest
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures.echo import answering, echoed

X = np.arange(3, dtype="f4")


@pytest.fixture
def ask(serve, report, job):
    """A client of a front end; nothing answers requests."""
    report(("x", "float32", (None, None)))
    with httpx.Client(base_url=serve().url, timeout=30) as client:
        yield client


@pytest.fixture
def buried(redis_server, db, job):
    """Give requests up; returns the ids of their letters, the oldest first."""
    create_group(db, job)

    def buried(**inputs):
        with InputQueue(port=redis_server.port, name=job) as queue:
            for uri, value in inputs.items():
                queue.enqueue(uri, x=value)
        for entry in StreamReader(db, job, "c", 60_000).read(10, None):
            dead_letter(db, job, 60, entry, PoisonRequest("given up after 3 attempts"), "Traceback ...\n  Boom")
        return [letter_id.decode() for letter_id, _ in db.xrange(JobKeys(job).dead_letters)]

    yield buried
    db.delete(JobKeys(job).dead_letters, JobKeys(job).events)


@pytest.fixture
def samples(ask, redis_server, db, job):
    """Let several front ends look at the job at the same time; returns the samples that another one then shows."""

    def samples(count, since=0):
        async def look():
            options = HttpOptions(redisUrl=redis_server.url, models=(job,))
            fronts = [FrontEnd(options) for _ in range(count)]
            await asyncio.gather(*(History(front.registry, front.dispatch).sample() for front in fronts))
            for front in fronts:
                await front.close()

        asyncio.run(look())
        return ask.get(f"/ui/models/{job}?since={since}").json()["history"]

    yield samples
    db.delete(JobKeys(job).history, JobKeys(job).slot_stats)


def test_figures_of_a_job_are_those_of_its_versions(ask, job, db):
    db.hset(JobKeys(job).slot_stats, mapping={"1/0/records_answered": 5, "2/0/records_answered": 7})
    db.hset(JobKeys(job).slot_stats, mapping={"2/1/records_failed:MODEL_ERROR": 2, "2/1/alive": 1})
    versions = ask.get("/ui/data").json()["jobs"][job]["versions"]
    assert (versions["1"]["requests"], versions["1"]["failures"]) == (5, 0)
    assert (versions["2"]["requests"], versions["2"]["codes"]) == (9, {"MODEL_ERROR": 2})
    db.delete(JobKeys(job).slot_stats)


def test_a_slot_has_its_threads_its_cpu_time_and_its_memory(ask, report, job, db):
    report(("x", "float32", (None, None)), threads=4, device="cpu")
    fields = {"cpu_seconds": 7, "process_memory_bytes": 9, "batch_compute_seconds:sum": 5, "alive": 10**14}
    db.hset(JobKeys(job).slot_stats, mapping={f"1/0/{name}": value for name, value in fields.items()})
    (slot,) = ask.get("/ui/data").json()["models"][0]["slotReports"]
    assert (slot["threads"], slot["device"], slot["cpuUs"], slot["memory"], slot["computeUs"]) == (4, "cpu", 7, 9, 5)
    db.delete(JobKeys(job).slot_stats)


def test_one_of_many_front_ends_adds_a_sample_and_others_show_it(samples, job, db):
    db.hset(JobKeys(job).slot_stats, "1/0/records_answered", 5)
    (sample,) = samples(4)
    assert sample["versions"]["1"]["requests"] == 5
    # The page has it already.
    assert samples(0, since=sample["time"]) == []


def test_the_history_has_a_bound(samples, job, db):
    # At once: the front end may have added its first sample already.
    with db.pipeline() as pipeline:
        pipeline.delete(JobKeys(job).history)
        for begin in range(1, 400):
            pipeline.xadd(JobKeys(job).history, {"figures": "{}"}, id=f"{begin}-0")
        pipeline.execute()
    found = samples(1)
    assert len(found) == db.xlen(JobKeys(job).history) == KEPT_S // STEP_S
    assert found[-1]["queue"] == 0
    assert KEPT_S < db.ttl(JobKeys(job).history) <= 2 * KEPT_S


def test_events_and_dead_letters_come_without_payloads(ask, buried, job, db):
    events.record(db, job, "started", "somebody")
    kept, _ = buried(small=X, large=np.zeros(MAX_PAYLOAD_BYTES // 4 + 1, "f4"))
    found = ask.get(f"/ui/models/{job}")
    assert len(found.content) < 4096
    large, small = found.json()["deadLetters"]
    assert (small["id"], small["uri"], small["code"], small["kept"]) == (kept, "small", "POISON_REQUEST", True)
    assert small["error"].endswith("given up after 3 attempts") and "Boom" in small["traceback"]
    assert (large["uri"], large["kept"]) == ("large", False)
    assert [(event["what"], event["by"]) for event in found.json()["events"]] == [("started", "somebody")]


def test_the_name_by_which_a_result_is_fetched_is_not_shown(ask, buried, job):
    (letter,) = buried(**{f"{'0' * 32}-1": X})
    ask.post(f"/ui/models/{job}/requeue", json={"ids": [letter]})
    buried(**{f"{'1' * 32}-1": X})
    page = ask.get(f"/ui/models/{job}").json()
    assert {each["uri"] for each in page["deadLetters"]} == {"0" * 8 + "…", "1" * 8 + "…"}
    assert page["events"][0]["what"] == f"dead letter {letter} ('00000000…') queued again"


def test_a_requeued_letter_is_answered_and_becomes_an_event(ask, buried, redis_server, job, db):
    kept, lost = buried(small=X, large=np.zeros(MAX_PAYLOAD_BYTES // 4 + 1, "f4"))
    done = ask.post(f"/ui/models/{job}/requeue", json={"ids": [kept, lost, "1-1", "no id"]}).json()
    assert done["requeued"] == [kept]
    assert "was not kept" in done["refused"][lost] and "has no dead letter" in done["refused"]["no id"]
    assert done["refused"].keys() == {lost, "1-1", "no id"}
    with answering(db, job, echoed), OutputQueue(port=redis_server.port, name=job) as results:
        np.testing.assert_array_equal(results.query("small", timeout=30), X)
    page = ask.get(f"/ui/models/{job}").json()
    assert [letter["id"] for letter in page["deadLetters"]] == [lost]
    (event,) = page["events"]
    assert (event["what"], event["by"]) == (f"dead letter {kept} ('small') queued again", "/ui")


@pytest.mark.parametrize("body", ["{", "[]", "{}", '{"ids": "1-1"}', '{"ids": [1]}'])
def test_a_wrong_body_requeues_nothing(ask, job, body):
    refused = ask.post(f"/ui/models/{job}/requeue", content=body)
    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_INPUT")


def test_a_page_of_another_origin_requeues_nothing(ask, buried, job, db):
    (letter,) = buried(small=X)
    for origin in ("https://evil.example", f"http://127.0.0.1:{ask.base_url.port + 1}", "null"):
        refused = ask.post(f"/ui/models/{job}/requeue", json={"ids": [letter]}, headers={"Origin": origin})
        assert refused.status_code == 403
    assert db.xlen(JobKeys(job).dead_letters) == 1
    own = ask.post(f"/ui/models/{job}/requeue", json={"ids": [letter]}, headers={"Origin": str(ask.base_url)})
    assert own.json()["requeued"] == [letter]


def test_nobody_without_a_key_requeues_where_others_can_connect(serve, report, buried, keys, job, db):
    report(("x", "float32", (None, None)))
    (letter,) = buried(small=X)
    path = f"/ui/models/{job}/requeue"
    open_front = serve("--interface=0.0.0.0")
    port = open_front.url.rpartition(":")[2]
    assert httpx.get(f"http://127.0.0.1:{port}/ui/data").json()["mayChange"] is False
    assert httpx.post(f"http://127.0.0.1:{port}{path}", json={"ids": [letter]}).status_code == 403
    shown = httpx.get(f"http://127.0.0.1:{port}/ui/models/{job}").json()["deadLetters"][0]
    assert "attempts" not in shown["error"] and "Boom" not in shown["traceback"]

    file, key = keys
    port = serve("--interface=0.0.0.0", f"--apiKeysFile={file}").url.rpartition(":")[2]
    assert httpx.post(f"http://127.0.0.1:{port}{path}", json={"ids": [letter]}).status_code == 401
    # The page may have any address that leads here; a browser sends no key by itself.
    headers = {"X-API-Key": key, "Origin": "https://serving.example"}
    done = httpx.post(f"http://127.0.0.1:{port}{path}", json={"ids": [letter]}, headers=headers)
    assert done.json()["requeued"] == [letter]
    assert db.xrange(JobKeys(job).events)[0][1][b"by"] == b"/ui (alice)"


def test_a_wrong_time_is_refused(ask, job):
    assert ask.get(f"/ui/models/{job}?since=yesterday").status_code == 400
