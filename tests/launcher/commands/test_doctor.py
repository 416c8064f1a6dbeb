"""The doctor: what a job needs, and what to do about what is missing."""

import json

import pytest

from cluster_serving.launcher.commands import doctor
from cluster_serving.launcher.commands.task_logs import chosen
from cluster_serving.launcher.config.file import read
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport
from tests.support.fixtures.redis_server import RedisServer


@pytest.fixture
def examined(own_cluster, tmp_path):
    def run(**settings):
        config = own_cluster.config(jobName="sick", **settings)
        ran = own_cluster.run("cluster-serving-cli", "doctor", "--json", "-c", config)
        return ran.returncode, {each["topic"]: (each["state"], each["text"]) for each in json.loads(ran.stdout)}

    return run


def test_each_finding_says_what_to_do(examined, tmp_path):
    code, found = examined(modelPath=str(tmp_path / "none"), redisUrl="127.0.0.1:1", flinkRestUrl="127.0.0.1:2")
    assert code == 1
    assert found["model"][0] == "failed" and "does not exist" in found["model"][1]
    assert found["redis"][0] == "warning" and "cluster-serving-start starts one" in found["redis"][1]
    assert found["python"][0] == found["java"][0] == "ok"


def test_models_of_a_folder_that_cannot_be_served_are_named(db, job, redis_server, tmp_path):
    for name in ("good", "keys", "broken"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "handler.py").write_text("class Handler: pass")
    (tmp_path / "models" / "keys" / "config.yaml").write_text("allowPickle: true")
    db.hset(JobKeys(job).models, "broken", SlotReport("", "failed", error="the file is cut off").to_json())
    path = tmp_path / "config.yaml"
    path.write_text(f"jobName: {job}\nmodelPath: models\nredisUrl: localhost:{redis_server.port}\n")
    found = {each.topic: each for each in doctor.examine(read(path), path)}
    assert (found["model"].state, found["model"].text) == (
        "warning",
        f"1 of 3 models in {tmp_path}/models: good; not served: keys ({tmp_path}/models/keys/config.yaml, line 1: "
        "allowPickle belongs to the job, not to one of its models; set it in the job's config.yaml); "
        "broken (the file is cut off)",
    )


def test_a_redis_that_hangs_is_no_redis_to_start(examined, tmp_path):
    server = RedisServer(tmp_path)
    server.pause()
    try:
        code, found = examined(modelPath=str(tmp_path), redisUrl=f"127.0.0.1:{server.port}", redisTimeout=500)
    finally:
        server.resume()
        server.stop()
    assert code == 1
    assert found["redis"][0] == "failed" and "does not answer as Redis (Timeout" in found["redis"][1]


def test_a_redis_elsewhere_that_does_not_run_is_an_error(examined, tmp_path):
    code, found = examined(modelPath=str(tmp_path), redisUrl="redis.invalid:6379")
    assert code == 1
    assert found["redis"][0] == "failed" and "cannot be reached" in found["redis"][1]


def test_a_log_without_its_harmless_lines_keeps_the_stack_traces():
    lines = [
        "printed by a library",
        "library: cannot open its cache",
        "2026-01-01 10:00:00,001 INFO  a - starts",
        "its second line",
        "2026-01-01 10:00:00,002 ERROR b - fails",
        "Traceback",
        "2026-01-01 10:00:00,003 WARN  c - warns",
    ]
    assert list(chosen(lines, errors=False)) == lines
    assert list(chosen(lines, errors=True)) == [lines[1], *lines[4:]]
