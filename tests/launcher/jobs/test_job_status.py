"""Jobs that Flink does not have, as `list` and `status` show them from what Redis knows."""

import json
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
import redis

from cluster_serving.launcher.commands import observing, report
from cluster_serving.launcher.config.file import read as read_config
from cluster_serving.launcher.jobs import job_status
from cluster_serving.launcher.jobs.lock import locked
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.services.flink_rest import FlinkRest, Job
from cluster_serving.launcher.terminal import console
from cluster_serving.protocol.generations import SERVING, Generation
from cluster_serving.protocol.keys import JOBS_KEY, JobKeys
from cluster_serving.protocol.slots import SlotReport
from tests.support.fixtures.redis_server import free_port

NONE_QUEUED = {"high": 0, "normal": 0, "low": 0, "pending": 0}


@pytest.fixture
def client(redis_server, job):
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        yield client
        client.delete(JobKeys(job).record, JobKeys(job).slots())
        client.srem(JOBS_KEY, job)


@pytest.fixture
def run(own_cluster, redis_server, job):
    """Run `cluster-serving-cli` for the job, while no Flink runs."""
    config = own_cluster.config(jobName=job, modelPath="model", redisUrl=f"127.0.0.1:{redis_server.port}")
    return lambda *words: own_cluster.run("cluster-serving-cli", *words, "-c", config)


def test_a_job_is_known_as_long_as_its_redis_knows_it(client, run, job):
    assert run("status").returncode == 1
    client.sadd(JOBS_KEY, job)
    assert [job, "STOPPED", "0"] in [line.split() for line in run("list").stdout.splitlines()]
    client.srem(JOBS_KEY, job)
    # As in a Redis Cluster, and for a user who may not read the names of jobs.
    JobStore(client, job).note("stopped")
    assert [job, "STOPPED"] in [line.split()[:2] for line in run("list").stdout.splitlines()]


def test_a_start_that_failed_shows_its_error_and_its_log(client, run, job):
    JobStore(client, job).note("starting", error="", log=Path("/a/submission.log"))
    JobStore(client, job).note("failed", error="no slots\x1b[2J")
    ran = run("status", "--json")
    assert ran.returncode == 3
    details = json.loads(ran.stdout)
    assert (details["state"], details["error"], details["log"]) == ("FAILED", "no slots\x1b[2J", "/a/submission.log")
    # Whoever writes to Redis does not control the terminal.
    assert f"{job}: no slots\\x1b[2J (log: /a/submission.log)" in run("list").stdout
    client.hset(JobKeys(job).record, "host", f"not-{socket.gethostname()}")
    assert f"/a/submission.log on not-{socket.gethostname()}" in run("status").stdout


def test_a_start_that_was_killed_has_failed(client, run, job):
    JobStore(client, job).note("starting", error="")
    with locked(JobStore(client, job)):
        assert json.loads(run("status", "--json").stdout)["state"] == "STARTING"
    details = json.loads(run("status", "--json").stdout)
    assert details["state"] == "FAILED"
    assert "killed" in details["error"]


def test_a_job_that_disappeared_is_lost(client, run, job):
    JobStore(client, job).note("running")
    client.hset(JobKeys(job).slots(), "0", SlotReport("start-1", "ready", "Echo", attempt="gone").to_json())
    details = json.loads(run("status", "--json").stdout)
    assert details["state"] == "LOST"
    assert [model["state"] for model in details["models"]] == ["silent"]
    assert "silent: its process has given no sign of life" in run("status").stdout
    assert details["since"] is None
    assert "flinkRestUrl" in details["error"]


def test_what_a_slot_reports_counts_more_than_an_earlier_error(client, run, job):
    JobStore(client, job).note("failed", error="some")
    report = SlotReport("start-1", "failed", code="MODEL_ERROR", error="no model")
    client.hset(JobKeys(job).slots(), "0", report.to_json())
    details = json.loads(run("status", "--json").stdout)
    assert details["error"] == "no model"
    assert details["models"] == [
        {"slot": 0, "state": "failed", "model": "", "device": "", "error": "no model", "restarts": 0}
    ]


def test_a_full_redis_takes_the_record(client, job):
    client.config_set("maxmemory", 1)
    try:
        JobStore(client, job).note("failed", error="no slots")
    finally:
        client.config_set("maxmemory", 0)
    assert JobStore(client, job).record().error == "no slots"


@pytest.fixture
def failed(client, job):
    """A job whose first start has failed: Redis knows it, and Flink does not."""
    client.sadd(JOBS_KEY, job)
    JobStore(client, job).note("failed", error="no model")
    reports = [SlotReport("start-1", "failed", error="no model"), SlotReport("start-1", "loading", index=1)]
    client.hset(JobKeys(job).slots(), mapping={str(report.index): report.to_json() for report in reports})
    client.hset(JobKeys(job).generations, "1", Generation(1, SERVING, "start-1").to_json())
    return job


def test_a_job_whose_start_failed_can_be_stopped(client, run, failed):
    stopped = run("stop", failed)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert f"cluster-serving-cli forget {failed}" in stopped.stdout
    assert {report.state for report in JobStore(client, failed).slots()} == {"stopped"}
    details = json.loads(run("status", "--json").stdout)
    # The cause of the failure stays known.
    assert (details["state"], details["error"]) == ("STOPPED", "no model")
    assert run("stop", failed).returncode == 1


def test_a_job_that_does_not_run_can_be_forgotten(client, run, failed):
    client.xadd(failed, {"uri": "waits"})
    client.xadd(JobKeys(failed).dead_letters, {"uri": "dead"})
    refused = run("forget", failed)
    assert refused.returncode == 1
    assert "1 waiting request, 1 dead letter" in refused.stderr and "--yes" in refused.stderr
    assert client.sismember(JOBS_KEY, failed)
    removed = run("forget", failed, "--yes")
    assert (removed.returncode, removed.stderr) == (0, "")
    assert f"Removed job {failed}, with 1 waiting request, 1 dead letter." in removed.stdout
    assert not client.sismember(JOBS_KEY, failed)
    again = run("forget", failed, "--yes")
    assert again.returncode == 1 and f"knows no job {failed}" in again.stderr
    assert not client.keys(f"{failed}*")


def test_a_job_that_answers_in_another_flink_is_left_alone(client, run, failed):
    client.hset(JobKeys(failed).slots(), "1", SlotReport("start-1", "ready", "Echo", index=1).to_json())
    details = json.loads(run("status", "--json").stdout)
    assert (details["state"], details["flink"]) == ("RUNNING", "another Flink")
    assert "was not stopped, because it runs in another Flink" in run("stop", failed).stderr
    assert "was not removed, because it runs in another Flink" in run("forget", failed, "--yes").stderr
    assert [report.state for report in JobStore(client, failed).slots()] == ["failed", "ready"]
    assert client.sismember(JOBS_KEY, failed)


def test_a_job_of_a_flink_that_does_not_answer_is_unknown_until_somebody_stops_it(client, run, job):
    client.sadd(JOBS_KEY, job)
    JobStore(client, job).note("running")
    place = f"http://{socket.gethostname()}:{free_port()}"
    client.hset(JobKeys(job).generations, "1", Generation(1, SERVING, "start-1", flink=place).to_json())
    client.hset(JobKeys(job).slots(), "0", SlotReport("start-1", "ready", "Echo", attempt="gone").to_json())
    details = json.loads(run("status", "--json").stdout)
    assert (details["state"], details["flink"]) == ("UNKNOWN", place)
    assert f"Flink at {place} does not answer" in details["error"]
    assert f"may run in Flink at {place}" in run("forget", job, "--yes").stderr
    assert run("stop", job).returncode == 0
    assert run("forget", job).returncode == 0
    assert not client.keys(f"{job}*")


@pytest.mark.parametrize(
    ("setting", "said"),
    [("min-replicas-to-write", "takes no writes: NOREPLICAS"), ("maxmemory", "has reached its memory limit")],
)
def test_a_redis_that_takes_no_writes_is_told_and_not_that_slots_are_silent(client, run, job, setting, said):
    JobStore(client, job).note("running")
    slot = SlotReport("first", "ready", "Echo", attempt="without a heartbeat")
    client.hset(JobKeys(job).slots(), "0", slot.to_json())
    assert "silent" in run("status").stdout
    client.config_set(setting, 1)
    try:
        shown = " ".join(run("status").stdout.split())
    finally:
        client.config_set(setting, 0)
    assert shown.count(said) == 2
    assert "silent" not in shown


def flink_with(name, state="RUNNING", seconds=1.0):
    """Return a Flink that has one job."""
    return SimpleNamespace(
        place="http://flink:8081",
        jobs=lambda *_: [Job("id", name, state, seconds)],
        parallelism=lambda _: 1,
        restarts=lambda _: 0,
        running=lambda _: 1,
        failure=lambda _: None,
    )


def test_nothing_is_known_of_a_job_of_another_redis(client, own_cluster, redis_server, job):
    """The Flink of a job may run jobs of others."""
    config = read_config(own_cluster.config(jobName=job, modelPath="model", redisUrl=f"127.0.0.1:{redis_server.port}"))
    status = job_status.read(config, flink_with("elsewhere"), "elsewhere")
    assert (status.state, status.answered) == ("RUNNING", None)
    shown = str(report.status(status, NONE_QUEUED))
    assert "? answered" in shown
    assert "0 requests" not in shown
    assert "RUNNING for 1 s, 0 restarts" in shown


def test_the_age_of_a_job_is_not_that_of_its_state_after_a_failure(client, own_cluster, redis_server, job, capsys):
    config = read_config(own_cluster.config(jobName=job, modelPath="model", redisUrl=f"127.0.0.1:{redis_server.port}"))
    status = job_status.read(config, flink_with(job, "RESTARTING", 400.0), job)
    assert "RESTARTING, started 6 min 40 s ago, 0 restarts" in str(report.status(status, NONE_QUEUED))
    console.print(report.listed([status]))
    assert "6 min" not in capsys.readouterr().out


def test_a_job_that_flink_started_again_shows_the_time_of_the_failure(client, own_cluster, redis_server, job):
    config = read_config(own_cluster.config(jobName=job, modelPath="model", redisUrl=f"127.0.0.1:{redis_server.port}"))
    client.hset(JobKeys(job).slots(), "0", SlotReport("start-1", "ready", "Echo", attempt="gone", restarts=1).to_json())
    flink = flink_with(job, seconds=400.0)
    flink.failure, flink.restarts = lambda _: (1.0, "a TaskManager died"), lambda _: 1
    status = job_status.read(config, flink, job)
    shown = str(report.status(status, NONE_QUEUED | {"normal": 2, "pending": 2}))
    assert "SILENT, started 6 min 40 s ago, 1 restart, the last failure at 1970-01-01" in shown
    # Interrupted requests wait for their slot.
    assert "2 of them read by slots that do not answer now" in shown


def test_a_flink_that_is_started_again_makes_no_job_that_answers_lost(client, own_cluster, redis_server, job):
    config = read_config(own_cluster.config(jobName=job, modelPath="model", redisUrl=f"127.0.0.1:{redis_server.port}"))
    JobStore(client, job).note("running")
    with FlinkRest(config.flink_rest_url, remedy="its supervisor starts it again") as flink:
        generation = Generation(1, SERVING, "start-1", flink=flink.place)
        client.hset(JobKeys(job).generations, "1", generation.to_json())
        slot = SlotReport("start-1", "ready", "Echo", attempt="without a heartbeat")
        client.hset(JobKeys(job).slots(), "0", slot.to_json())
        assert job_status.read(config, flink, job).state == "LOST"
        client.hset(JobKeys(job).slots(), "0", SlotReport("start-1", "ready", "Echo").to_json())
        status = job_status.read(config, flink, job)
    client.delete(JobKeys(job).generations)
    assert (status.state, status.ready) == ("UNKNOWN", 1)
    assert status.error.endswith("; its supervisor starts it again")


def test_a_list_whose_numbers_are_unknown_says_why(own_cluster, said, monkeypatch, capsys):
    path = Path(own_cluster.config(jobName="a", modelPath="model", redisUrl=f"127.0.0.1:{free_port()}"))
    unknown = job_status.read(read_config(path), flink_with("a"), "a")
    monkeypatch.setattr(job_status, "read_all", lambda *_: [unknown])
    observing.list_(path)
    assert ["a", "RUNNING", "id"] in [line.split()[:3] for line in capsys.readouterr().out.splitlines()]
    assert [text for text in said if text.startswith("only what Flink says is known: Redis at")]
