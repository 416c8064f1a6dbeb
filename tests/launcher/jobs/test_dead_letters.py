"""`cluster-serving-cli dead`, on letters that the connectors wrote."""

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from cluster_serving.client import InputQueue, OutputQueue
from cluster_serving.connectors.slot.answer import dead_letter
from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.launcher.jobs.dead_letters import DeadLetters
from cluster_serving.protocol.errors import PoisonRequest
from cluster_serving.protocol.hosting.orders import removed
from cluster_serving.protocol.keys import JobKeys


@pytest.fixture
def bury_all(db, job):
    """Give all waiting requests up; returns the ids of their letters."""
    create_group(db, job)

    def bury_all():
        for entry in StreamReader(db, job, "c", 60_000).read(10, None):
            dead_letter(db, job, 60, entry, PoisonRequest("given up after 3 attempts\nreally"), "Traceback ...\n  Boom")
        return [letter_id.decode() for letter_id, _ in db.xrange(JobKeys(job).dead_letters)]

    yield bury_all
    db.delete(JobKeys(job).dead_letters)


@pytest.fixture
def requests(redis_server, job):
    with InputQueue(port=redis_server.port, name=job) as queue:
        yield queue


@pytest.fixture
def dead(redis_server, job, tmp_path):
    (tmp_path / "config.yaml").write_text(f"modelPath: m\njobName: {job}\nredisUrl: localhost:{redis_server.port}\n")

    def dead(*arguments, answer=""):
        return subprocess.run(
            [sys.executable, "-c", "from cluster_serving.launcher.cli import cli; cli()", "dead", *arguments],
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "40", "CLUSTER_SERVING_HOME": str(tmp_path / "state")},
            input=answer,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return dead


def test_letters_are_listed_and_shown(dead, requests, bury_all):
    requests.enqueue("a long uri " + "x" * 80, x=np.zeros((3, 4), "f4"), name=np.array(["text"], object))
    (letter_id,) = bury_all()
    (row,) = json.loads(dead("list", "--json").stdout)
    assert (row["id"], row["code"], row["error"]) == (letter_id, "POISON_REQUEST", "given up after 3 attempts")
    plain = dead("list").stdout.splitlines()
    assert plain[0].split() == ["id", "time", "uri", "code", "bytes", "error"]
    assert "x" * 80 in plain[1]
    shown = json.loads(dead("show", letter_id, "--json").stdout)
    assert shown["traceback"] == "Traceback ...\n  Boom"
    assert shown["inputs"] == [
        {"name": "x", "kind": "tensor", "dtype": "float32", "shape": [3, 4]},
        {"name": "name", "kind": "tensor", "dtype": "str", "shape": [1]},
    ]
    text = dead("show", letter_id).stdout
    assert "x: tensor float32 [3, 4]" in text
    assert "Boom" in text


def test_a_requeued_request_is_as_its_client_sent_it(db, job, dead, requests, bury_all):
    requests.enqueue("a", x=np.arange(3, dtype="f4"))
    db.xadd(job, {"uri": "b", "data": b"cGF5", "reply_to": "channel", "deadline": "90000"})
    before = [fields for _, fields in db.xrange(job)]
    letters = bury_all()
    done = dead("requeue", "--all")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" again as ") == len(letters) == 2
    assert f"Queued 2 of 2 requests of job {job} again." in done.stdout
    assert f"Queued 0 of 0 requests of job {job} again." in dead("requeue", "--all").stdout
    assert [fields for _, fields in db.xrange(job)] == before
    assert db.xlen(JobKeys(job).dead_letters) == 0
    assert not db.exists(JobKeys(job).native_result("a"), JobKeys(job).result("b"))


def test_a_requeued_request_is_answered(redis_server, job, dead, requests, bury_all, request):
    requests.enqueue("a", x=np.arange(3, dtype="f4"))
    (letter_id,) = bury_all()
    request.getfixturevalue("echo")
    assert dead("requeue", letter_id).returncode == 0
    with OutputQueue(port=redis_server.port, name=job) as results:
        assert results.query("a", timeout=30).tolist() == [0, 1, 2]


def test_a_letter_without_its_payload_is_not_queued_again(db, job, dead, requests, bury_all):
    requests.enqueue("a", x=np.zeros(1 << 20, "f4"))
    (letter_id,) = bury_all()
    assert json.loads(dead("show", letter_id, "--json").stdout)["payload"].startswith("not kept")
    refused = dead("requeue", letter_id)
    assert refused.returncode == 1
    assert "its payload of 4" in refused.stderr
    assert db.xlen(JobKeys(job).dead_letters) == 1
    assert db.xlen(job) == 0


def test_a_request_to_a_model_that_was_removed_is_not_queued_again(db, job, dead, requests, bury_all):
    requests.enqueue("a", x=np.zeros(3, "f4"))
    (letter_id,) = bury_all()
    reason = str(removed(job, "shop"))
    db.hset(JobKeys(job).limits, "removed", reason)
    refused = dead("requeue", letter_id)
    assert refused.returncode == 1
    assert f"dead letter {letter_id} stays, as nothing would answer its request: {reason}" in refused.stderr
    assert (db.xlen(JobKeys(job).dead_letters), db.xlen(job)) == (1, 0)


def test_concurrent_requeues_queue_a_letter_once(db, job, requests, bury_all):
    requests.enqueue("a", x=np.zeros(3, "f4"))
    (letter_id,) = bury_all()
    done = []

    def requeue():
        try:
            done.append(DeadLetters(db, job).requeue(letter_id))
        except Exception as error:
            done.append(str(error))

    threads = [threading.Thread(target=requeue) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 4
    assert db.xlen(job) == 1


def test_letters_are_purged_once_that_is_confirmed(db, job, dead, requests, bury_all):
    for uri in "abc":
        requests.enqueue(uri, x=np.zeros(3, "f4"))
    first, *_ = bury_all()
    assert dead("purge", "--all", answer="n\n").returncode == 1
    unanswered = dead("purge", "--all")
    assert unanswered.returncode == 1
    assert f"error: 3 dead letters of job {job} not removed. Use --yes" in unanswered.stderr
    assert db.xlen(JobKeys(job).dead_letters) == 3
    assert "Removed 1" in dead("purge", first, "--yes").stdout
    assert "Removed 2" in dead("purge", "--all", answer="y\n").stdout
    assert "has no dead letters" in dead("list").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["show", "1-1"], 1, "no dead letter 1-1"),
        (["show", "nonsense"], 1, "no dead letter nonsense"),
        (["requeue", "1-1"], 1, "no dead letter 1-1"),
        (["list", "no-such"], 1, "Redis knows no job no-such; cluster-serving-cli list shows the jobs"),
        (["list", "no-such", "--json"], 1, "Redis knows no job no-such"),
        (["requeue"], 2, "names no dead letters; add their ids"),
        (["purge", "1-1", "--all"], 2, "either ids or --all"),
    ],
)
def test_a_mistake_is_one_line(dead, arguments, code, message):
    ran = dead(*arguments)
    assert ran.returncode == code
    assert message in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
