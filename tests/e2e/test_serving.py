"""The whole path on real models: client, Redis, Flink, engine and back."""

import json
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import httpx
import numpy as np
import pytest

from cluster_serving.client import InferenceFailed, InputQueue, InvalidInput
from cluster_serving.frontend import arguments
from cluster_serving.job.models.encryption import encrypt
from cluster_serving.protocol.keys import GROUP, JOBS_KEY, JobKeys
from cluster_serving.protocol.original import arrow as original_arrow
from tests.chaos.faults import kept_processes
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

# OpenVINO computes in bfloat16 on the CPUs that have it.
TOLERANCE = 0.02


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """One folder per engine, each with the digits model."""
    root = tmp_path_factory.mktemp("models")
    for name, save in {
        "openvino": model_zoo.save_openvino_digits,
        "images": model_zoo.save_openvino_digit_images,
        "torch": model_zoo.save_torchscript_digits,
        "tensorflow": model_zoo.save_savedmodel_digits,
    }.items():
        save(root / name)
    return root


def assert_answers_are_right(queue, count=64):
    """Many requests at once: every one gets the model's answer to its own digit."""
    digits = model_zoo.digits_data()[0][:count]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda digit: queue.predict({"x": digit}, timeout=30), digits))
    np.testing.assert_allclose(np.stack(answers), model_zoo.digits_mlp(digits), atol=TOLERANCE)


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


def test_images_are_decoded_resized_and_ranked(models, started, tmp_path):
    queue, _ = started(jobName="images", modelPath=models / "images", imageResize="8,8", postProcessing="topN(3)")
    x, labels = model_zoo.digits_data()
    pixels = np.round(x[:50].reshape(-1, 8, 8) * 255).astype("u1").repeat(4, 1).repeat(4, 2)
    right = 0
    for number, (image, label) in enumerate(zip(pixels, labels[:50], strict=True)):
        encoded = cv2.imencode(".png", image)[1].tobytes()
        path = tmp_path / f"{number}.png"
        path.write_bytes(encoded)
        result = queue.predict({"image": {"path": str(path)}} if number % 2 else {"image": encoded}, timeout=30)
        ranking = result.top_n
        assert len(ranking) == 3
        assert ranking[0][1] >= ranking[1][1] >= ranking[2][1]
        right += ranking[0][0] == label
    assert right >= 45
    with pytest.raises(InvalidInput, match="image"):
        queue.predict({"image": b"not an image"}, timeout=30)


def test_a_bad_record_is_told_why_and_its_neighbours_are_answered(models, started, cluster_db):
    queue, results = started(jobName="bad", modelPath=models / "openvino", batchTimeout=50, greedyBatching=False)
    good = model_zoo.digits_data()[0]
    bad = {
        "shape": ({"x": np.zeros(63, "f4")}, r"x: float32\[64\]"),
        "missing": ({"x": good[0], "y": good[0]}, "2 inputs"),
        "text": ({"x": ["a", "b"]}, "x"),
        "image": ({"x": b"\xff\xd8 truncated"}, "image"),
    }
    for number in range(20):
        queue.enqueue(f"good-{number}", x=good[number])
        for name, (inputs, _) in bad.items():
            queue.enqueue(f"{name}-{number}", **inputs)
        cluster_db.xadd("bad", {"uri": f"garbage-{number}", "data": b"\x00\xff garbage"})
        cluster_db.xadd("bad", {"uri": f"empty-{number}"})
        cluster_db.xadd("bad", {"no": "uri"})
    for number in range(20):
        answer = results.query(f"good-{number}", timeout=30)
        np.testing.assert_allclose(answer, model_zoo.digits_mlp(good[number : number + 1])[0], atol=TOLERANCE)
        for name, message in {
            **{key: value[1] for key, value in bad.items()},
            "garbage": "base64",
            "empty": "data",
        }.items():
            with pytest.raises((InvalidInput, InferenceFailed), match=message):
                results.query(f"{name}-{number}", timeout=30)
    wait_until(lambda: cluster_db.xlen("bad") == 0 and cluster_db.xpending("bad", GROUP)["pending"] == 0)


def test_original_clients_are_answered_in_their_encoding(models, started, cluster_db):
    started(jobName="original", modelPath=models / "openvino")
    digit = model_zoo.digits_data()[0][0]
    cluster_db.xadd("original", {"uri": "ok", "data": original_arrow.encode_request({"x": digit})})
    cluster_db.xadd("original", {"uri": "no", "data": original_arrow.encode_request({"x": digit[:3]})})
    ok, no = (JobKeys("original").result(uri) for uri in ("ok", "no"))
    wait_until(lambda: cluster_db.exists(ok, no) == 2)
    decoded = original_arrow.decode_result(cluster_db.hget(ok, "value"))[0]
    np.testing.assert_allclose(decoded, model_zoo.digits_mlp(digit[np.newaxis])[0], atol=TOLERANCE)
    assert cluster_db.hget(no, "value") == b"NaN"
    assert b"float32[64]" in cluster_db.hget(no, "error")


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


@pytest.mark.parametrize("configured", [False, True])
def test_an_encrypted_model_is_served_with_its_secret(models, started, cluster_db, tmp_path, configured):
    for path in (models / "openvino").iterdir():
        (tmp_path / path.name).write_bytes(encrypt(path.read_bytes(), "my secret", "my salt"))
    cluster_db.delete("model_secured")
    if not configured:
        cluster_db.hset("model_secured", mapping={"secret": "my secret", "salt": "my salt"})
    settings = {"modelSecret": "my secret:my salt"} if configured else {}
    queue, _ = started(jobName="encrypted", modelPath=tmp_path, modelEncrypted=True, maxQueueLength=1000, **settings)
    assert_answers_are_right(queue, 4)
    if configured:
        assert_a_redis_that_was_emptied_is_filled_again(queue, cluster_db)


def assert_a_redis_that_was_emptied_is_filled_again(queue, db):
    """Callers over Python and HTTP get all answers, also those whose requests FLUSHALL has removed."""
    digit = model_zoo.digits_data()[0][0]
    options = [f"--redisUrl=redis://127.0.0.1:{queue.port}", "--port=0", "--grpcPort=0"]
    body = {"instances": [{"x": digit.tolist()}]}
    path = f"/models/{queue.name}/predict"
    flushed = threading.Event()

    def written():
        hashes = [db.hgetall(key) for key in ("model_secured", JobKeys(queue.name).limits, JobKeys(queue.name).slots())]
        # Heartbeats change all the time.
        once = [{field: value for field, value in fields.items() if b":beat" not in field} for fields in hashes]
        return [*once, db.sismember(JOBS_KEY, queue.name)]

    def ask_client():
        queue.predict({"x": digit}, timeout=60)

    def ask_http():
        answer = httpx.post(front.url + path, json=body, timeout=60)
        assert answer.status_code == 200, answer.text

    def keep_asking(ask):
        after = 0
        while after < 100:
            ask()
            after += flushed.is_set()

    before = written()
    front = Running(arguments.read(options, {}))
    # A front end that has never seen the job would not know it while Redis is empty.
    ask_http()
    with ThreadPoolExecutor() as pool:
        asking = [pool.submit(keep_asking, ask) for ask in (ask_client, ask_http) * 4]
        wait_until(lambda: int(db.get(JobKeys(queue.name).answered)) > 100)
        db.flushall()
        flushed.set()
        for one in asking:
            one.result(60)
    front.stop()
    wait_until(lambda: written() == before)
    late = Running(arguments.read(options, {}))
    assert httpx.post(late.url + path, json=body, timeout=60).status_code == 200
    late.stop()


def test_filters_rank_for_both_kinds_of_client(models, started, cluster_db):
    queue, _ = started(jobName="ranked", modelPath=models / "openvino", postProcessing="topN(2)")
    digit = model_zoo.digits_data()[0][0]
    expected = model_zoo.digits_mlp(digit[np.newaxis])[0]
    ranking = queue.predict({"x": digit}, timeout=30).top_n
    assert [index for index, _ in ranking] == np.argsort(-expected)[:2].tolist()
    cluster_db.xadd("ranked", {"uri": "text", "data": original_arrow.encode_request({"x": digit})})
    key = JobKeys("ranked").result("text")
    wait_until(lambda: cluster_db.exists(key))
    text = cluster_db.hget(key, "topN").decode()
    assert json.loads(text.replace("][", "],["))[0][0] == ranking[0][0]


def metric_sum(url, name):
    answer = httpx.get(url, params={"get": name}).json()
    return answer[0]["sum"] if answer else None


def all_metrics(url):
    return {metric["id"] for metric in httpx.get(url.replace("/subtasks/metrics", "/metrics")).json()}
