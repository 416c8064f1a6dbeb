"""A folder of models under the rules for users of Redis in the docs: enough for what they are for, and no more."""

import re
from pathlib import Path

import httpx
import numpy as np
import pytest
import redis

from cluster_serving.client import InputQueue, OutputQueue
from cluster_serving.frontend import arguments
from cluster_serving.job.hosting.wakeups import Wakeups
from cluster_serving.launcher.jobs import hosted
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.keys import DEFAULT_JOB, JobKeys
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.running_slot import RunningJob
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

DOCS = Path(__file__).parents[2] / "docs" / "how-to"
JOB, MODELS = "fenced", {"oneself": 1, "twofold": 2}
ROW = np.arange(4, dtype="f4")


def rules(page):
    """Return the rules of a page: the name of each user → the rest."""
    found = re.findall(r"^ACL SETUSER (\S+) (.*)$", (DOCS / page).read_text("utf8"), re.MULTILINE)
    assert [name for name, _ in found] == ["serving-client", "serving-job", "serving-operator"]
    return dict(found)


def of_front_end(text):
    """Return the rights of a front end beside those of a client: all that its paragraph names."""
    paragraph = text.partition("A front end serves all jobs")[2].partition("Then switch")[0]
    named = re.findall(r"`([~+&][^`]+)`", paragraph)
    assert {"~<jobName>:stats", "+smembers", "&cluster-serving_*"} <= set(named)
    return named


def denied(admin):
    """Return what was refused, whether or not somebody noticed."""
    # redis-py introduces itself, if it may; newer servers name the subcommand, too.
    return [each for each in admin.acl_log() if str(each["object"]).partition("|")[0] != "client"]


@pytest.fixture(scope="module")
def url(redis_server, tmp_path_factory):
    """Address of the Redis of a job, by user; its models are served under the rules of that user."""
    root = tmp_path_factory.mktemp("repository")
    for name, factor in MODELS.items():
        model_zoo.save_openvino_product(root / name, factor)

    def url(user):
        return f"redis://{user}:{user.removeprefix('serving-')}-password@127.0.0.1:{redis_server.port}/0"

    of_job, of_model = rules("security.md"), rules("many-models.md")
    users = {
        user: [of_job[user].replace(DEFAULT_JOB, JOB), *(of_model[user].replace("iris", name) for name in MODELS)]
        for user in of_job
    }
    clients = users["serving-client"]
    users["front"] = [each.replace(">client-password", ">front-password") for each in clients]
    named = of_front_end((DOCS / "security.md").read_text("utf8"))
    users["front"] += [right.replace("<jobName>", name) for name in (JOB, *MODELS) for right in named]
    users["front"].append(f"~{JOB}:models")
    # A client of one model.
    users["serving-client"] = [of_job["serving-client"].partition(" resetkeys")[0], "resetkeys", "resetchannels"]
    users["serving-client"] += [of_job["serving-client"].partition("&serving_stream:pieces:*")[2]]
    users["serving-client"] += [of_model["serving-client"].replace("iris", "twofold")]
    with redis.Redis(port=redis_server.port, decode_responses=True) as admin:
        for user, given in users.items():
            admin.execute_command("ACL", "SETUSER", user, *" ".join(given).split())
        admin.acl_log_reset()
        settings = {"jobName": JOB, "modelPath": root, "redisUrl": url("serving-job")}
        job = RunningJob(redis_server, tmp_path_factory.mktemp("config"), **settings)
        job.start()
        yield url
        job.stop()
        assert denied(admin) == []
        for user in users:
            admin.execute_command("ACL", "DELUSER", user)


@pytest.fixture
def admin(redis_server):
    """A client that may do everything."""
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        yield client


def test_each_user_can_do_what_it_is_for(url, admin):
    where = {"url": url("serving-client"), "name": "twofold"}
    with InputQueue(**where) as requests, OutputQueue(**where) as results:
        np.testing.assert_array_equal(requests.predict({"x": ROW}, timeout=60), ROW * 2)
        requests.enqueue("a", x=ROW)
        np.testing.assert_array_equal(results.query("a", timeout=60), ROW * 2)
    with redis.Redis.from_url(url("serving-operator"), decode_responses=True) as client:
        assert [(one.name, one.state, one.queued) for one in hosted.read(JobStore(client, JOB))] == [
            ("oneself", "ready", 0),
            ("twofold", "ready", 0),
        ]
    front_end = Running(arguments.read([f"--redisUrl={url('front')}", "--port=0"], {}))
    try:
        with httpx.Client(base_url=front_end.url, timeout=60) as front:
            for name, factor in MODELS.items():
                answer = front.post(f"/models/{name}/predict", json={"instances": [{"x": ROW.tolist()}]})
                assert answer.json()["predictions"][0]["value"] == (ROW * factor).tolist()
            assert front.get("/health/ready").status_code == 200
            for path in ("/metrics", "/ui/data", "/ui/models/oneself"):
                assert front.get(path).status_code == 200
    finally:
        front_end.stop()
    # What Redis has lost is written again.
    with redis.Redis.from_url(url("serving-job")) as client:
        client.delete(*JobKeys("twofold").streams, JobKeys("twofold").limits, JobKeys(JOB).models)
        wait_until(lambda: client.exists(JobKeys(JOB).models), 30)
    assert denied(admin) == []


@pytest.mark.parametrize(
    ("user", "command"),
    [
        ("serving-client", ["XADD", "oneself", "*", "uri", "a"]),
        ("serving-client", ["HGETALL", f"{JOB}:models"]),
        ("serving-job", ["DEL", "another"]),
        ("serving-operator", ["XLEN", "another"]),
    ],
)
def test_what_is_not_theirs_is_refused(url, admin, user, command):
    with redis.Redis.from_url(url(user)) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.execute_command(*command)
    admin.acl_log_reset()


def test_a_slot_whose_user_may_not_wait_for_orders_looks_for_them_instead(admin, redis_server):
    admin.execute_command("ACL", "SETUSER", "patient", "on", ">patient", "allkeys", "+@all", "-xread")
    admin.acl_log_reset()
    with redis.Redis.from_url(f"redis://patient:patient@127.0.0.1:{redis_server.port}") as client:
        waits = Wakeups(client, JOB)
        for _ in range(3):
            waits.wait()
        waits.close()
    # It asks once.
    assert [(each["object"], each["count"]) for each in denied(admin)] == [("xread", 1)]
    admin.execute_command("ACL", "DELUSER", "patient")
    admin.acl_log_reset()
