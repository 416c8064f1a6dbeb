"""The command against a real job."""

import json
import subprocess

import pytest

from tests.support.fixtures.commands import BIN
from tests.support.payloads import model_zoo


@pytest.fixture(scope="module")
def job(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model_zoo.save_openvino_digits(folder)
    done = cluster.start(jobName="bench", modelPath=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    yield "bench"
    cluster.stop("bench")


def bench(cluster, job, *arguments):
    redis = f"redis://127.0.0.1:{cluster.redis_port}"
    quick = ("--warm-up", "0.3", "--window", "0.5", "--windows", "4")
    return cluster.run("cluster-serving-bench", "--job", job, "--redis-url", redis, *quick, *arguments)


@pytest.mark.parametrize(
    "load",
    [
        ("--mode", "closed", "--client", "sync", "--concurrency", "1,4"),
        ("--mode", "closed", "--client", "async", "--concurrency", "8", "--processes", "2"),
        ("--mode", "open", "--rate", "50"),
        ("--mode", "pipelined", "--client", "sync", "--concurrency", "64"),
        ("--mode", "pipelined", "--client", "async", "--concurrency", "64", "--requests", "500"),
    ],
    ids=" ".join,
)
def test_every_way_of_loading_loses_nothing(cluster, job, tmp_path, load):
    files = ("--json", str(tmp_path / "r.json"))
    done = bench(cluster, job, "--flink-url", cluster.rest, *load, *files)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "r.json").read_text())
    assert len(document["results"]) == 1 + ("1,4" in load)
    for result in document["results"]:
        assert result["sent"] == result["answered"] > 0
        assert (result["lost"], result["wrong"], result["errors"], result["repeated"]) == (0, 0, {}, 0)
        assert result["checked"] > 0
        assert 0 < result["latency_ms"]["p50"] <= result["latency_ms"]["p99"] <= result["latency_ms"]["max"]
        assert {"TaskManager", "Redis", "JobManager", "load generator"} <= set(result["cpu_seconds_per_1000"])
        assert result["generator_cpu_seconds"] > 0
    if "--requests" in load:
        assert document["results"][0]["answered"] == 500


def test_requests_that_fail_are_errors_and_not_lost(cluster, job, tmp_path):
    done = bench(cluster, job, "--shape", "63")
    assert done.returncode == 1
    assert "INVALID_INPUT: " in done.stderr and "float32[63]" in done.stderr


def test_a_job_that_does_not_run_is_named(cluster, job):
    done = bench(cluster, "no-such-job")
    assert done.returncode == 1
    assert "no-such-job" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_is_a_subcommand_too():
    done = subprocess.run(
        [str(BIN / "cluster-serving"), "bench", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "--concurrency" in done.stdout
