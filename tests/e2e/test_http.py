"""The front end as users start it, beside a job with a real model."""

import base64
import json
import os
import signal
import subprocess

import cv2
import httpx
import numpy as np
import pytest
import schemathesis
import yaml

from tests.chaos.faults import kept_processes
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo


@pytest.fixture(scope="module")
def served(cluster):
    """URL of the front end that `cluster-serving-start --http` starts with a job of images, ranked."""
    folder = cluster.folder / "http-digits"
    folder.mkdir()
    model_zoo.save_openvino_digit_images(folder / "model")
    port = free_port()
    config = {
        "modelPath": "model",
        "jobName": "http-digits",
        "imageResize": "8,8",
        "postProcessing": "topN(1)",
        "redisUrl": f"127.0.0.1:{cluster.redis_port}",
        "flinkRestUrl": cluster.rest.removeprefix("http://"),
        # Other tests leave jobs behind.
        "http": {"port": port, "grpcPort": free_port(), "requiredModels": ["http-digits"]},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    done = cluster.run("cluster-serving-start", "--http", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    url = f"http://127.0.0.1:{port}"
    assert all(line in done.stdout for line in (f"HTTP  {url}/predict", f"page  {url}/ui", f"API  {url}/docs"))
    yield url
    cluster.stop("http-digits")


def test_the_front_end_of_a_running_job_is_started_again_with_its_present_options(served, cluster):
    folder, port = cluster.folder / "http-digits", free_port()
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["http"] |= {"port": port, "grpcPort": free_port()}
    (folder / "second.yaml").write_text(yaml.safe_dump(config))

    def most_instances():
        done = httpx.post(f"http://127.0.0.1:{port}/predict", json={"instances": images(2)[0]})
        return 1 if done.status_code == 413 else 2

    done = cluster.run("cluster-serving-start", "--http", "-c", "second.yaml", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Job http-digits runs already" in done.stdout
    assert most_instances() == 2
    config["http"]["maxInstances"] = 1
    (folder / "second.yaml").write_text(yaml.safe_dump(config))
    done = cluster.run("cluster-serving-restart", "--http", "-c", "second.yaml", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert most_instances() == 1


def test_the_examples_of_the_models_document_are_answered_as_it_says(served):
    document = httpx.get(f"{served}/models/http-digits/openapi.json").json()
    described = schemathesis.openapi.from_dict(document)
    described.validate()
    for path, methods in document["paths"].items():
        reference = methods["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        example = document["components"]["schemas"][reference.rpartition("/")[2]]["example"]
        answer = httpx.post(f"{served}{path}", json=example, timeout=60)
        assert answer.status_code == 200, answer.text
        described[path]["POST"].validate_response(answer)


def images(count):
    x, labels = model_zoo.digits_data()
    pixels = np.round(x[:count].reshape(-1, 8, 8) * 255).astype("u1").repeat(4, 1).repeat(4, 2)
    encoded = [base64.b64encode(cv2.imencode(".png", image)[1]).decode() for image in pixels]
    return [{"image": text} for text in encoded], labels[:count]


def curl(url, body, *options):
    """The guide's call, literally."""
    return subprocess.run(
        ["curl", "-sS", *options, "-d", body, "-X", "POST", f"{url}/predict"], capture_output=True, check=True
    ).stdout.decode()


def test_the_guides_call_with_images_is_answered(served):
    instances, labels = images(5)
    answer = json.loads(curl(served, json.dumps({"instances": instances})))
    assert [prediction["value"][0]["class"] for prediction in answer["predictions"]] == labels.tolist()


def test_the_guides_answer_has_its_form_where_it_is_asked_for(served):
    instances, labels = images(5)
    answer = json.loads(curl(f"{served}/zoo-0.9", json.dumps({"instances": instances})))
    for text, label in zip(answer["predictions"], labels, strict=True):
        assert text.startswith(f"{{value=[[{label},0.")
        assert text.endswith("]]}")


def test_what_the_model_refuses_is_400_with_its_reason_and_place(served):
    instances, _ = images(1)
    response = httpx.post(f"{served}/predict", json={"instances": [*instances, {"image": [[1, 2], [3, 4]]}]})
    assert response.status_code == 400
    assert response.json()["error"].startswith("instances[1]: input 'image' is float32[2, 2]")
    assert "value" in response.json()["predictions"][0]


def test_a_dead_taskmanager_is_noticed_and_its_successor_too(served, cluster):
    url = f"{served}/health/ready"
    wait_until(lambda: httpx.get(url, timeout=30).status_code == 200, 60)
    assert httpx.get(f"{served}/health/live").status_code == 200
    taskmanagers = kept_processes(cluster, "taskmanager")
    for pid in taskmanagers:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: httpx.get(url, timeout=30).status_code == 503, 60)
        assert "http-digits" in httpx.get(url, timeout=30).json()["error"]
        assert httpx.get(f"{served}/health/live").status_code == 200
    finally:
        for pid in taskmanagers:
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: httpx.get(url, timeout=30).status_code == 200, 120)
    instances, labels = images(2)
    answer = httpx.post(f"{served}/predict", json={"instances": instances}, timeout=60).json()
    assert [prediction["value"][0]["class"] for prediction in answer["predictions"]] == labels.tolist()
