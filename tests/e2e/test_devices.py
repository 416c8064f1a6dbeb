"""The key `device` of a job on Flink."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.support import model_zoo
from tests.support.accelerators import accelerator_of


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    model_zoo.save_torchscript_digits(folder)
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
    assert "device is cuda:99, and PyTorch" in said
    assert "or set device: auto" in said
    assert "Traceback" not in said
