"""What happens inside a job, as the commands show it."""

import json
import subprocess

import pytest

from cluster_serving.client import InferenceFailed
from tests.support.fixtures.handled import NO_NEGATIVES, write
from tests.support.fixtures.waiting import wait_until


def test_the_commands_show_what_a_job_does_and_what_has_happened_to_it(started, cluster, tmp_path):
    write(tmp_path, NO_NEGATIVES)
    queue, _ = started(jobName="observed", modelPath=tmp_path, modelParallelism=1)
    folder = cluster.folder / "observed"

    def run(*words):
        return cluster.run("cluster-serving-cli", *words, cwd=folder)

    for _ in range(3):
        queue.predict({"x": 1}, timeout=60)
    with pytest.raises(InferenceFailed):
        queue.predict({"x": -1}, timeout=60)

    def details():
        return json.loads(run("status", "--json").stdout)

    wait_until(lambda: details()["recent"]["failed"] == {"INFERENCE_FAILED": 1})
    shown = details()
    assert shown["dead_letters"] == 1 and shown["recent"]["oldest_s"] == 0
    assert 0 < shown["recent"]["p50_ms"] <= shown["recent"]["p99_ms"] and shown["recent"]["batch_size"] >= 1
    text = run("status").stdout
    assert "0 records/s" in text and "half within" in text
    assert "1 records in all: 1 INFERENCE_FAILED" in text and "cluster-serving-cli dead list observed" in text
    (row,) = [line for line in run("list").stdout.splitlines() if line.split()[:1] == ["observed"]]
    assert row.split()[-2:] == ["4", "1"]
    # Again and again, a line each, until it is ended.
    with cluster.running("cluster-serving-cli", folder, "status", "--watch", "--json") as watching:
        seen = [json.loads(watching.stdout.readline())["state"] for _ in range(2)]
        watching.send_signal(subprocess.signal.SIGTERM)
    assert seen == ["RUNNING", "RUNNING"]

    assert run("scale", "observed", "2").returncode == 0
    events = json.loads(run("events", "--json").stdout)
    whats = [event["what"] for event in events]
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert whats[0].startswith("starting") and "1 slot starting" in whats and "2 slots starting" in whats
    assert any(what.startswith("generation 2, version 1: serving in place of 1") for what in whats)
    assert "generation 1: ended" in whats
    assert all("'cluster-serving-" in event["by"] for event in events)
    assert "'cluster-serving-cli scale observed 2'" in run("events", "-n", "1").stdout

    everything, problems = run("logs").stdout.splitlines(), run("logs", "--errors").stdout.splitlines()
    assert len(problems) < len(everything) and any(" INFO " in line for line in everything)
    assert any("-1 is negative" in line for line in everything)

    found = {each["topic"]: each for each in json.loads(run("doctor", "--json").stdout)}
    assert found["redis"]["state"] == found["flink"]["state"] == found["model"]["state"] == "ok"
    assert abs(float(found["clock"]["text"].split()[2])) < 1000
