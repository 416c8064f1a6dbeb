"""The container of the KServe runtime starts as its file says, and serves the mounted model by both protocols."""

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from cluster_serving.launcher.config.model import Config
from cluster_serving.settings import sources
from cluster_serving.settings.model import keys
from tests.support.fixtures.cluster import share_classes
from tests.support.fixtures.commands import BIN
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo

ROOT = Path(__file__).parents[3]
RUNTIME = yaml.safe_load((ROOT / "charts" / "kserve" / "runtime.yaml").read_text("utf8"))
(CONTAINER,) = RUNTIME["spec"]["containers"]
VARIABLES = {variable["name"]: variable["value"] for variable in CONTAINER["env"]}
NAME = "my-digits"


@contextmanager
def container(folder, model):
    """The program of the container, with ports of its own and the model where KServe would mount it; yields its URL."""
    share_classes(folder)
    # KServe puts the name of the InferenceService into the whole container.
    command, args = (json.loads(json.dumps(CONTAINER[key]).replace("{{.Name}}", NAME)) for key in ("command", "args"))
    port, redis, flink = free_port(), free_port(), free_port()
    variables = VARIABLES | {
        "CLUSTER_SERVING_HOME": str(folder),
        "CLUSTER_SERVING_MODEL_PATH": str(model),
        "CLUSTER_SERVING_REDIS_URL": f"127.0.0.1:{redis}",
        "CLUSTER_SERVING_FLINK_REST_URL": f"127.0.0.1:{flink}",
        "CLUSTER_SERVING_HTTP_PORT": str(port),
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    assert "/mnt/models" in args[0]
    with subprocess.Popen([*command, *args], env=os.environ | variables, start_new_session=True) as process:
        try:
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(120)


def ready(process, url):
    assert process.poll() is None
    try:
        return httpx.get(f"{url}{CONTAINER['readinessProbe']['httpGet']['path']}", timeout=30).status_code == 200
    except httpx.TransportError:
        return False


def test_its_command_serves_the_model_until_it_is_told_to_end(own_cluster, tmp_path):
    model_zoo.save_openvino_digits(tmp_path / "model")
    x, _ = model_zoo.digits_data()
    expected = model_zoo.digits_mlp(x[:1])[0]
    with container(tmp_path / "home", tmp_path / "model") as (process, url):
        wait_until(lambda: ready(process, url), 240)
        assert httpx.get(f"{url}{CONTAINER['livenessProbe']['httpGet']['path']}").status_code == 200
        metrics = httpx.get(
            f"{url}{RUNTIME['spec']['annotations']['prometheus.kserve.io/path']}", headers={"accept": "text/plain"}
        )
        assert "cluster_serving_ready" in metrics.text
        answer = httpx.post(f"{url}/v1/models/{NAME}:predict", json={"instances": x[:1].tolist()}, timeout=60).json()
        assert answer["predictions"][0] == pytest.approx(expected.tolist(), abs=0.02)
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 64], "data": x[0].tolist()}
        answer = httpx.post(f"{url}/v2/models/{NAME}/infer", json={"inputs": [tensor]}, timeout=60).json()
        assert answer["outputs"][0]["data"] == pytest.approx(expected.tolist(), abs=0.02)
    assert process.returncode == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}/v2/health/live")
    # Nothing is left of Redis and Flink.
    assert not any((tmp_path / "home").rglob("process.json"))


def test_a_model_that_cannot_be_loaded_ends_the_container(tmp_path):
    (tmp_path / "model").mkdir()
    with container(tmp_path / "home", tmp_path / "model") as (process, _):
        assert process.wait(120) == 1


def test_the_variables_are_keys_of_the_configuration():
    known = {sources.variable_of(Config, key) for key in keys(Config)}
    assert set(VARIABLES) - {"CLUSTER_SERVING_HOME"} <= known


def test_the_probes_and_the_metrics_are_on_the_published_port():
    (port,) = CONTAINER["ports"]
    assert CONTAINER["name"] == "kserve-container"
    probes = [CONTAINER[name]["httpGet"]["port"] for name in ("readinessProbe", "livenessProbe")]
    assert {*probes, int(RUNTIME["spec"]["annotations"]["prometheus.kserve.io/port"])} == {port["containerPort"]}
    assert f"port: {port['containerPort']}" in CONTAINER["args"][0]
