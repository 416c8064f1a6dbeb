"""The whole path on real models: client, Redis, Flink, engine and back."""

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from cluster_serving.client import InputQueue
from cluster_serving.protocol.keys import JobKeys
from tests.chaos.faults import kept_processes
from tests.support.fixtures.digits import TOLERANCE, assert_answers_are_right
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """One folder per engine, each with the digits model."""
    root = tmp_path_factory.mktemp("models")
    for name, save in {
        "openvino": model_zoo.save_openvino_digits,
        "torch": model_zoo.save_torchscript_digits,
        "tensorflow": model_zoo.save_savedmodel_digits,
    }.items():
        save(root / name)
    return root


@pytest.mark.parametrize(
    ("engine", "mode", "parallelism"),
    [("openvino", "thread", 2), ("torch", "thread", 1), ("tensorflow", "thread", 1), ("torch", "process", 2)],
)
def test_every_engine_answers(models, started, cluster, engine, mode, parallelism):
    queue, _ = started(
        jobName=f"{engine}-{mode}", modelPath=models / engine, executionMode=mode, modelParallelism=parallelism
    )
    assert_answers_are_right(queue)
    # The workers of process mode need it, and are processes of their own. A library of Java has a similar name.
    for manager in kept_processes(cluster, "taskmanager"):
        assert "/apache_beam/" not in Path(f"/proc/{manager}/maps").read_text()


def test_two_jobs_share_a_cluster_and_stop_apart(models, started, cluster):
    first, _ = started(jobName="first", modelPath=models / "openvino")
    second, results = started(jobName="second", modelPath=models / "tensorflow")
    assert_answers_are_right(first)
    assert_answers_are_right(second)
    assert cluster.stop("second").returncode == 0
    assert_answers_are_right(first)
    second.enqueue("while stopped", x=model_zoo.digits_data()[0][0])
    again = cluster.start(jobName="second", modelPath=models / "tensorflow")
    assert again.returncode == 0, again.stdout + again.stderr
    assert results.query("while stopped", timeout=30).shape == (10,)
    assert_answers_are_right(second)


def send(port, client, count):
    """One client process: vectors of three lengths, each answered with its own double."""
    wrong = 0
    with InputQueue(port=port, name="shapes") as queue, ThreadPoolExecutor(16) as pool:

        def one(number):
            vector = np.full(3 + number % 3, client * count + number, "f8")
            return np.array_equal(queue.predict({"x": vector}, timeout=60), vector * 2)

        wrong = sum(not right for right in pool.map(one, range(count)))
    return wrong


def test_ten_thousand_requests_of_three_shapes_from_four_processes(started, cluster, cluster_db, tmp_path):
    from openvino import opset13 as ops

    x = ops.parameter([-1, -1], np.float64, name="x")
    model_zoo.save_openvino(tmp_path, {"x": x}, {"y": ops.multiply(x, ops.constant(np.float64(2)))})
    started(jobName="shapes", modelPath=tmp_path, modelParallelism=2)
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        wrong = pool.starmap(send, [(cluster.redis_port, client, 2500) for client in range(4)])
    assert wrong == [0, 0, 0, 0]
    assert cluster_db.xlen("shapes") == 0
    assert not list(cluster_db.scan_iter(JobKeys("shapes").native_result("*")))
    for vertex in cluster.job("shapes")["vertices"]:
        url = f"{cluster.rest}/jobs/{cluster.job('shapes')['jid']}/vertices/{vertex['id']}/subtasks/metrics"
        wait_until(lambda url=url: metric_sum(url, "numRecordsOut") == 10_000, 60)


def test_flink_shows_job_operators_and_metrics(models, started, cluster):
    queue, _ = started(jobName="shown", modelPath=models / "openvino")
    assert_answers_are_right(queue, 32)
    job = cluster.job("shown")
    assert job["name"] == "shown"
    parameters = httpx.get(f"{cluster.rest}/jobs/{job['jid']}/config").json()["execution-config"]["user-config"]
    assert (parameters["cluster-serving-job"], parameters["cluster-serving-generation"]) == ("shown", "1")
    source, rest = job["vertices"]
    assert source["name"] == "Source: Tick -> Redis Streams source, key_by"
    assert rest["name"] == "Batching window, Inference, Redis hash sink"
    url = f"{cluster.rest}/jobs/{job['jid']}/vertices/{rest['id']}/subtasks/metrics"
    wait_until(lambda: metric_sum(url, "numRecordsOut") == 32, 60)
    names = {metric["id"].rpartition(".")[2] for metric in httpx.get(url.replace("/subtasks", "")).json()}
    assert {"failures", "reconnects", "requests", "numRecordsOutPerSecond"} <= names
    assert any(name.startswith("batchSize") or "batchSize" in name for name in all_metrics(url))


def test_the_job_stays_up_while_redis_is_away(models, started, cluster, cluster_db):
    queue, results = started(jobName="away", modelPath=models / "openvino")
    digit = model_zoo.digits_data()[0][0]
    queue.predict({"x": digit}, timeout=30)
    # As long as Redis runs no command, nobody reaches it.
    cluster_db.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    cluster_db.execute_command("CLIENT", "PAUSE", "7000")
    time.sleep(7)
    queue.enqueue("after", x=digit)
    assert results.query("after", timeout=30).shape == (10,)
    job = cluster.job("away")
    assert job["state"] == "RUNNING"
    assert httpx.get(f"{cluster.rest}/jobs/{job['jid']}/exceptions").json()["exceptionHistory"]["entries"] == []


def test_what_was_being_computed_when_the_job_stopped_is_answered_after_the_next_start(models, started, cluster):
    queue, results = started(jobName="again", modelPath=models / "openvino", modelParallelism=2)
    digits = model_zoo.digits_data()[0]
    for number in range(400):
        queue.enqueue(f"r{number}", x=digits[number])
    restarted = cluster.restart("again")
    assert restarted.returncode == 0, restarted.stdout + restarted.stderr
    answers = np.stack([results.query_and_delete(f"r{number}", timeout=60) for number in range(400)])
    np.testing.assert_allclose(answers, model_zoo.digits_mlp(digits), atol=TOLERANCE)


def metric_sum(url, name):
    answer = httpx.get(url, params={"get": name}).json()
    return answer[0]["sum"] if answer else None


def all_metrics(url):
    return {metric["id"] for metric in httpx.get(url.replace("/subtasks/metrics", "/metrics")).json()}
