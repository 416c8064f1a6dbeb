"""The key `device` of a job on Flink."""

from __future__ import annotations

import json
from importlib.util import find_spec

import numpy as np
import pytest

from tests.support.payloads import model_zoo
from tests.support.worlds.accelerators import accelerator_of

# The environments of bench/gpu.sh have one of these each.
ENGINES = {
    "torch": model_zoo.save_torchscript_digits,
    "onnxruntime": model_zoo.save_onnx_digits,
    "tensorflow": model_zoo.save_keras_digits,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    next(save for package, save in ENGINES.items() if find_spec(package))(folder)
    return folder


def test_auto_takes_what_there_is_and_says_it(cluster, started, model):
    x = model_zoo.digits_data()[0][:5]
    requests = started(jobName="device-auto", modelPath=model, device="auto", modelParallelism=2)[0]
    for digit, expected in zip(x, model_zoo.digits_mlp(x), strict=True):
        np.testing.assert_allclose(requests.predict({"x": digit}), expected, atol=1e-3)
    status = cluster.run("cluster-serving-cli", "status", "--json", cwd=cluster.folder / "device-auto")
    devices = [slot["device"] for slot in json.loads(status.stdout)["models"]]
    assert [device.partition(":")[0] for device in devices] == [(accelerator_of(model) or "cpu").partition(":")[0]] * 2


def test_a_device_that_is_absent_fails_the_start_with_the_remedy(cluster, model):
    done = cluster.start(jobName="device-absent", modelPath=model, device="cuda:99")
    assert done.returncode == 1
    said = " ".join((done.stdout + done.stderr).split())
    assert "device is cuda:99, and" in said
    assert "or set device: auto" in said
    assert "Traceback" not in said
