"""Two Flinks that share a Redis, or two Redis that share a Flink: no command harms the jobs of the other."""

import json

import numpy as np
import pytest
import redis

from cluster_serving.client import InputQueue
from cluster_serving.protocol.generations import Generation
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures.cluster import running
from tests.support.fixtures.predictor import save_doubling


@pytest.fixture
def other(tmp_path):
    """Commands of a second user, with a Flink of their own."""
    with running(tmp_path / "other") as cluster:
        yield cluster


def test_no_command_harms_a_job_of_another_flink(own_cluster, other, tmp_path):
    save_doubling(tmp_path / "model", 4)
    shared = {"modelPath": tmp_path / "model", "redisUrl": f"127.0.0.1:{own_cluster.redis_port}"}
    place = f":{other.flink_port}"

    def answers():
        with InputQueue(port=own_cluster.redis_port, name="theirs") as requests:
            return requests.predict({"x": np.ones(4, "f4")}, timeout=60).tolist()

    for cluster, name in ((own_cluster, "ours"), (other, "theirs")):
        done = cluster.start(jobName=name, **shared)
        assert done.returncode == 0, done.stdout + done.stderr

    # A configuration of the same job and Redis that names the wrong Flink.
    theirs = own_cluster.config(jobName="theirs", **shared)
    for words in (
        ["start"],
        ["restart"],
        ["update"],
        ["scale", "2"],
        ["promote"],
        ["rollback"],
        ["stop"],
        ["forget", "--yes"],
    ):
        refused = own_cluster.run("cluster-serving", *words, "-c", theirs)
        assert refused.returncode == 1, refused.stderr
        assert "runs in Flink at http://" in refused.stderr and place in refused.stderr, words
        assert answers() == [2, 2, 2, 2]
    shown = own_cluster.run("cluster-serving-cli", "status", "--json", "-c", theirs)
    assert shown.returncode == 0
    details = json.loads(shown.stdout)
    assert details["state"] == "RUNNING" and details["flink"].endswith(place) and details["job_id"]

    # As an older version has written it.
    with redis.Redis(port=own_cluster.redis_port) as client:
        key = JobKeys("theirs").generations
        [(number, record)] = [(each, text) for each, text in client.hgetall(key).items() if each.isdigit()]
        kept = json.loads(record)
        del kept["flink"]
        client.hset(key, number, json.dumps(kept))
        assert Generation.from_json(json.dumps(kept)).flink == ""
    listed = json.loads(own_cluster.run("cluster-serving-cli", "list", "--json", "-c", theirs).stdout)
    assert {job["name"]: job["state"] for job in listed} == {"ours": "RUNNING", "theirs": "RUNNING"}

    # The other way round: a configuration of the same name and Flink, with another Redis.
    apart = other.config(
        jobName="ours", modelPath=tmp_path / "model", flinkRestUrl=f"localhost:{own_cluster.flink_port}"
    )
    for words in (["start"], ["start", "--http"], ["restart"], ["update"], ["stop"], ["forget", "--yes"]):
        refused = other.run("cluster-serving", *words, "-c", apart)
        assert refused.returncode == 1, refused.stderr
        assert "Flink has a job of that name that neither" in refused.stderr, words
    assert "Job ours goes on" in other.run("cluster-serving-shutdown", "--yes", "-c", apart).stdout
    with InputQueue(port=own_cluster.redis_port, name="ours") as requests:
        assert requests.predict({"x": np.ones(4, "f4")}, timeout=60).tolist() == [2, 2, 2, 2]

    left = own_cluster.run("cluster-serving-shutdown", "--yes", "-c", theirs)
    assert left.returncode == 0
    assert "go on: job theirs runs in" in left.stdout
    assert answers() == [2, 2, 2, 2]
    assert other.stop("theirs").returncode == 0
    assert "removed its data" in own_cluster.shutdown().stdout
