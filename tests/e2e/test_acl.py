"""The rules of docs/how-to/security.md on a Redis without default user: enough for what they are for, and no more."""

import asyncio
import copy
import json
import re
from pathlib import Path

import numpy as np
import pytest
import redis

from cluster_serving.client import InputQueue, OutputQueue
from cluster_serving.client.aio import AsyncInputQueue
from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.answer import dead_letter
from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.connectors.slot.redis import connect
from cluster_serving.connectors.slot.stream import StreamReader
from cluster_serving.protocol.errors import PoisonRequest, RequestCancelled, ServingError
from cluster_serving.protocol.keys import DEFAULT_JOB, JobKeys
from tests.support.fixtures.redis_topologies import Server, servers
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "security.md"
JOB = "restricted"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    rules = re.findall(r"^ACL (SETUSER .*)$", DOCS.read_text("utf8"), re.MULTILINE)
    assert [rule.split()[1] for rule in rules] == ["serving-client", "serving-job", "serving-operator"]
    with servers() as running:
        server = running(Server(tmp_path_factory.mktemp("acl")))
        for rule in rules:
            server.client.execute_command("ACL", *rule.replace(DEFAULT_JOB, JOB).split())
        server.client.execute_command("ACL SETUSER", "admin", "on", ">admin", "~*", "&*", "+@all")
        server.client.execute_command("ACL SETUSER", "default", "off")
        server.client.close()
        yield server


@pytest.fixture
def url(server):
    def url(user):
        return f"redis://serving-{user}:{user}-password@127.0.0.1:{server.port}/0"

    return url


@pytest.fixture
def nothing_denied(server):
    """Fails a test if something was refused to somebody, whether or not it was noticed."""
    with redis.Redis.from_url(f"redis://admin:admin@127.0.0.1:{server.port}", decode_responses=True) as admin:
        admin.acl_log_reset()
        yield
        # redis-py introduces itself, if it may; newer servers name the subcommand, too.
        assert [entry for entry in admin.acl_log() if entry["object"].partition("|")[0] != "client"] == []


@pytest.fixture
def job(cluster, url, tmp_path):
    """A job started by its own user."""
    elsewhere = copy.copy(cluster)
    elsewhere._addresses = cluster._addresses | {"redisUrl": url("job")}
    model_zoo.save_openvino_digits(tmp_path / "model")
    done = elsewhere.start(jobName=JOB, modelPath=tmp_path / "model")
    assert done.returncode == 0, done.stdout + done.stderr
    yield elsewhere
    assert elsewhere.stop(JOB).returncode == 0


def test_a_job_without_a_right_that_it_needs_does_not_start(server, cluster, url, tmp_path):
    """Nothing was denied before: a slot reads its requests only once its model is loaded."""
    lacking = copy.copy(cluster)
    lacking._addresses = cluster._addresses | {"redisUrl": url("job")}
    model_zoo.save_openvino_digits(tmp_path / "model")
    with redis.Redis.from_url(f"redis://admin:admin@127.0.0.1:{server.port}") as admin:
        admin.execute_command("ACL SETUSER", "serving-job", "-xreadgroup")
        try:
            done = lacking.start(jobName=JOB, modelPath=tmp_path / "model")
        finally:
            admin.execute_command("ACL SETUSER", "serving-job", "+xreadgroup")
    assert done.returncode == 1
    text = " ".join((done.stdout + done.stderr).split())
    assert "refuses a command that the job needs" in text and "xreadgroup" in text
    assert "Ready" not in text


def test_a_job_serves_clients_and_operators_under_these_rules(nothing_denied, job, url):
    x = np.zeros(64, "f4")
    with InputQueue(name=JOB, url=url("client")) as requests, OutputQueue(name=JOB, url=url("client")) as results:
        assert requests.predict({"x": x}, timeout=60).shape == (10,)
        requests.enqueue("a", x=x)
        assert results.query("a", timeout=60).shape == (10,)
        assert results.dequeue().keys() == {"a"}
        assert requests.db.wait(0, 1) == 0

        async def ask():
            async with AsyncInputQueue(name=JOB, url=url("client")) as queue:
                return await queue.predict({"x": x}, timeout=60)

        assert asyncio.run(ask()).shape == (10,)
        with pytest.raises(ServingError, match="64"):
            requests.predict({"x": np.zeros(3, "f4")}, timeout=60)

    # What a job has written once comes back if Redis has lost it.
    with redis.Redis.from_url(url("job")) as db:
        db.delete(JobKeys(JOB).slots(), JobKeys(JOB).limits)
        wait_until(lambda: db.exists(JobKeys(JOB).slots(), JobKeys(JOB).limits) == 2)

    operator = copy.copy(job)
    operator._environment = job._environment | {"CLUSTER_SERVING_REDIS_URL": url("operator")}
    folder = job.folder / JOB
    status = operator.run("cluster-serving-cli", "status", cwd=folder)
    assert status.returncode == 0, status.stderr
    assert "RUNNING" in status.stdout
    assert operator.run("cluster-serving-cli", "dead", "list", cwd=folder).stdout == f"Job {JOB} has no dead letters.\n"


def test_what_has_to_be_done_by_hand_works_under_these_rules(nothing_denied, cluster, url, tmp_path):
    (tmp_path / "config.yaml").write_text(f"modelPath: m\njobName: {JOB}\nredisUrl: {url('operator')}\n")
    with connect(RedisOptions(url("job"))) as client, InputQueue(name=JOB, url=url("client")) as requests:
        create_group(client, JOB)
        requests.enqueue("never", x=np.zeros(64, "f4"))
        assert requests.cancel("never")
        with OutputQueue(name=JOB, url=url("client")) as results, pytest.raises(RequestCancelled):
            results.query_and_delete("never")
        requests.enqueue("a", x=np.zeros(64, "f4"))
        (entry,) = StreamReader(client, JOB, f"{JOB}-9", 60_000).read(1, None)
        dead_letter(client, JOB, 60, entry, PoisonRequest("it kills"))
        (letter,) = json.loads(cluster.run("cluster-serving-cli", "dead", "list", "--json", cwd=tmp_path).stdout)
        done = cluster.run("cluster-serving-cli", "dead", "requeue", letter["id"], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert client.xlen(JOB) == 1
        assert client.xlen(JobKeys(JOB).dead_letters) == 0
        client.delete(JOB)


@pytest.mark.parametrize(
    ("user", "command"),
    [
        ("client", ["FLUSHALL"]),
        ("client", ["KEYS", "*"]),
        ("client", ["XADD", "other_job", "*", "uri", "a"]),
        ("client", ["HGETALL", "cluster-serving_other_job:a"]),
        ("client", ["HGETALL", "other_job:result:a"]),
        ("client", ["DEL", f"{JOB}:dead"]),
        ("client", ["SUBSCRIBE", "anything"]),
        ("job", ["CONFIG", "GET", "*"]),
        ("job", ["DEL", "other_job"]),
        ("operator", ["XREADGROUP", "GROUP", "serving", "me", "STREAMS", JOB, ">"]),
        ("operator", ["FLUSHDB"]),
    ],
)
def test_what_is_not_theirs_is_refused(url, user, command):
    with redis.Redis.from_url(url(user)) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*command)
