"""Jobs that Flink does not have, as `list` and `status` show them from what Redis knows."""

import json
import socket
from pathlib import Path

import pytest
import redis

from cluster_serving.launcher.jobs import record
from cluster_serving.launcher.jobs.lock import locked
from cluster_serving.protocol.keys import JOBS_KEY, record_key, slots_key
from cluster_serving.protocol.slots import SlotReport


@pytest.fixture
def client(redis_server, job):
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        yield client
        client.delete(record_key(job), slots_key(job))
        client.srem(JOBS_KEY, job)


@pytest.fixture
def run(own_cluster, redis_server, job):
    """Run `cluster-serving-cli` for the job, while no Flink runs."""
    config = own_cluster.config(jobName=job, modelPath="model", redisUrl=f"127.0.0.1:{redis_server.port}")
    return lambda *words: own_cluster.run("cluster-serving-cli", *words, "-c", config)


def test_a_job_is_known_as_long_as_its_redis_knows_it(client, run, job):
    assert run("status").returncode == 1
    client.sadd(JOBS_KEY, job)
    assert any(line.split() == [job, "STOPPED", "0"] for line in run("list").stdout.splitlines())
    client.srem(JOBS_KEY, job)
    # As in a Redis Cluster, and for a user who may not read the names of jobs.
    record.note(client, job, "stopped")
    assert f"{job}  STOPPED" in run("list").stdout


def test_a_start_that_failed_shows_its_error_and_its_log(client, run, job):
    record.note(client, job, "starting", error="", log=Path("/a/submission.log"))
    record.note(client, job, "failed", error="no slots\x1b[2J")
    ran = run("status", "--json")
    assert ran.returncode == 3
    details = json.loads(ran.stdout)
    assert (details["state"], details["error"], details["log"]) == ("FAILED", "no slots\x1b[2J", "/a/submission.log")
    # Whoever writes to Redis does not control the terminal.
    assert f"{job}: no slots\\x1b[2J (log: /a/submission.log)" in run("list").stdout
    client.hset(record_key(job), "host", f"not-{socket.gethostname()}")
    assert f"/a/submission.log on not-{socket.gethostname()}" in run("status").stdout


def test_a_start_that_was_killed_has_failed(client, run, job):
    record.note(client, job, "starting", error="")
    with locked(client, job, lambda _: None):
        assert json.loads(run("status", "--json").stdout)["state"] == "STARTING"
    details = json.loads(run("status", "--json").stdout)
    assert details["state"] == "FAILED"
    assert "killed" in details["error"]


def test_a_job_that_disappeared_is_lost(client, run, job):
    record.note(client, job, "running")
    client.hset(slots_key(job), "0", SlotReport("start-1", "ready", "Echo", attempt="gone").to_json())
    details = json.loads(run("status", "--json").stdout)
    assert details["state"] == "LOST"
    assert [model["state"] for model in details["models"]] == ["silent"]
    assert "silent: its process has given no sign of life" in run("status").stdout
    assert details["since"] is None
    assert "flinkRestUrl" in details["error"]


def test_what_a_slot_reports_counts_more_than_an_earlier_error(client, run, job):
    record.note(client, job, "failed", error="some")
    client.hset(slots_key(job), "0", SlotReport("start-1", "failed", code="MODEL_ERROR", error="no model").to_json())
    details = json.loads(run("status", "--json").stdout)
    assert details["error"] == "no model"
    assert details["models"] == [
        {"slot": 0, "state": "failed", "model": "", "device": "", "error": "no model", "restarts": 0}
    ]


def test_a_full_redis_takes_the_record(client, job):
    client.config_set("maxmemory", 1)
    try:
        record.note(client, job, "failed", error="no slots")
    finally:
        client.config_set("maxmemory", 0)
    assert record.read(client, job).error == "no slots"
