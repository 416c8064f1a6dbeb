"""A job that follows its folder and its clients, on a real Flink."""

import json
import re
import shutil
import threading

import httpx
import numpy as np
import tritonclient.http as triton

from cluster_serving.launcher.rollout.model_watch import SETTLED_S
from tests.support.fixtures.handled import write
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

JOB = "following"

SLOW = """
    import time

    class Handler:
        inputs = {"x": "float32[1]"}
        outputs = {"y": "float32[1]"}

        def predict(self, batch):
            time.sleep(0.1)
            return {"y": batch["x"]}
    """


def status(cluster):
    return json.loads(cluster.run("cluster-serving-cli", "status", "--json", cwd=cluster.folder / JOB).stdout)


def test_new_versions_are_served_and_clients_unload_and_load_the_model(started, cluster, tmp_path):
    model, port = tmp_path / "model", free_port()
    model_zoo.save_openvino_digits(model / "1")
    http = {"port": port, "grpcEnabled": False, "requestTimeout": 120_000}
    started(jobName=JOB, modelPath=model, http=http, watchModel=True, modelControl=True)
    served = cluster.run("cluster-serving-start", "--http", cwd=cluster.folder / JOB)
    assert served.returncode == 0, served.stderr

    with triton.InferenceServerClient(f"127.0.0.1:{port}", network_timeout=120) as client:

        def versions():
            return [row["version"] for row in client.get_model_repository_index() if row["name"] == JOB]

        def refused():
            return httpx.get(f"http://127.0.0.1:{port}/models/{JOB}").json()[0]["refusedModel"]

        def answer():
            x = triton.InferInput("x", [1, 64], "FP32")
            x.set_data_from_numpy(np.zeros((1, 64), "f4"))
            return client.infer(JOB, [x]).as_numpy("probabilities").shape

        # Copied slowly: at first the file of the weights is missing.
        shutil.copytree(model / "1", model / "2", ignore=shutil.ignore_patterns("*.bin"))
        shutil.copy(model / "1" / "digits.bin", model / "2")
        wait_until(lambda: versions() == ["2"], 120)

        # A bad one is told, and changes nothing.
        shutil.copytree(model / "2", model / "3")
        (model / "3" / "digits.bin").write_bytes(b"")
        wait_until(lambda: status(cluster)["error"], 120)
        assert re.search("is not served until its files change: .*3/digits.xml", status(cluster)["error"])
        assert (versions(), answer()) == (["2"], (1, 10))
        wait_until(lambda: "3/digits.xml" in refused(), 60)
        shutil.rmtree(model / "3")
        wait_until(lambda: not status(cluster)["error"], 30 + SETTLED_S)
        wait_until(lambda: not refused(), 60)

        client.unload_model(JOB)
        assert [row["state"] for row in client.get_model_repository_index() if row["name"] == JOB] == ["UNAVAILABLE"]
        assert status(cluster)["state"] == "STOPPED"
        client.load_model(JOB)
        assert (versions(), answer()) == (["2"], (1, 10))

    assert status(cluster)["controller"].startswith("watchModel, modelControl on ")
    assert cluster.stop(JOB).returncode == 0
    assert status(cluster)["controller"] == ""


def test_a_job_gets_slots_when_its_requests_wait(started, cluster, tmp_path):
    write(tmp_path, SLOW)
    autoscale = {"max": 2, "targetQueueWait": 50}
    queue, _ = started(jobName=JOB, modelPath=tmp_path, maxBatchSize=1, autoscale=autoscale)
    scaled = threading.Event()
    answers = []

    def ask():
        while not scaled.is_set():
            answers.append(queue.predict({"x": np.ones(1, "f4")}, timeout=60).value.item())

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    try:
        wait_until(lambda: status(cluster)["slots"] == 2, 480)
    finally:
        scaled.set()
        for asker in askers:
            asker.join()
    # Nobody's request failed meanwhile.
    assert set(answers) == {1.0}
    done = "Changing the number of slots from 1 to 2: 95 % of the requests wait up to [0-9]+ ms in the queue"
    wait_until(lambda: re.search(f"{done}, with a target of 50 ms; done", status(cluster)["controller"]), 60)
