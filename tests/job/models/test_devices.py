"""The key `device`: what is chosen of the devices that an engine reports, and what the engines here report."""

from __future__ import annotations

import numpy as np
import pytest

from cluster_serving.job.models import load_model
from cluster_serving.job.models.devices import Reported, choose, cuda_driver_devices, device_of_handler
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ModelError
from tests.support.payloads import model_zoo
from tests.support.worlds.accelerators import accelerator_of

CUDA = Reported("PyTorch 9", ("cpu", "cuda:0", "cuda:1"), "buy one")
INTEL = Reported("OpenVINO 9", ("cpu", "gpu:0", "gpu:1", "npu:0"), "buy one")
NONE = Reported("ONNX Runtime 9", ("cpu",), "run pip install it")


@pytest.mark.parametrize(
    ("wanted", "reported", "slots"),
    [
        ("cpu", CUDA, ["cpu", "cpu"]),
        ("auto", CUDA, ["cuda:0", "cuda:1", "cuda:0"]),
        ("auto", INTEL, ["gpu:0", "gpu:1", "gpu:0"]),
        ("auto", NONE, ["cpu", "cpu"]),
        ("auto", Reported("OpenVINO 9", ("cpu", "npu:0"), ""), ["cpu"]),
        ("cuda", CUDA, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]),
        ("gpu", CUDA, ["cuda:0", "cuda:1"]),
        ("cuda:1", CUDA, ["cuda:1", "cuda:1"]),
        ("gpu:1", INTEL, ["gpu:1", "gpu:1"]),
        ("npu", INTEL, ["npu:0", "npu:0"]),
        ("cuda:1,cuda:0", CUDA, ["cuda:1", "cuda:0", "cuda:1"]),
        ("gpu,npu", INTEL, ["gpu:0", "gpu:1", "npu:0", "gpu:0"]),
        ("cuda:0,cpu", CUDA, ["cuda:0", "cpu", "cuda:0"]),
    ],
)
def test_slots_take_the_devices_in_turn(wanted, reported, slots):
    assert [choose(wanted, reported, slot) for slot in range(len(slots))] == slots


@pytest.mark.parametrize(
    ("wanted", "reported", "message"),
    [
        ("cuda", NONE, "device is cuda, and ONNX Runtime 9 reports no device but the cpu: run pip install it; or "),
        ("cuda:2", CUDA, "reports cpu, cuda:0, cuda:1: name one of these, or cuda for both of them; or set device: au"),
        ("cuda:0,cuda:7", CUDA, "device is cuda:0,cuda:7, and PyTorch 9 reports cpu, cuda:0, cuda:1: name one"),
        ("cuda", INTEL, "reports cpu, gpu:0, gpu:1, npu:0: buy one; or set device: auto"),
        ("npu", CUDA, "device is npu, and PyTorch 9 reports cpu, cuda:0, cuda:1: buy one"),
    ],
)
def test_a_device_that_is_not_reported_is_refused_in_every_slot(wanted, reported, message):
    for slot in range(3):
        with pytest.raises(ModelError) as refused:
            choose(wanted, reported, slot)
        assert message in str(refused.value)


def test_auto_takes_what_the_engine_reports(digits_folder):
    model = load_model(ModelOptions(str(digits_folder), device="auto"))
    x = model_zoo.digits_data()[0][:5]
    np.testing.assert_allclose(model.predict([x])[0], model_zoo.digits_mlp(x), atol=0.02)
    assert model.device == (accelerator_of(digits_folder) or "cpu")


def test_a_device_that_no_engine_has_is_refused(digits_folder):
    with pytest.raises(ModelError, match=r"device is cuda:99, and \w+.* reports .*; or set device: auto") as refused:
        load_model(ModelOptions(str(digits_folder), device="cuda:99"))
    if digits_folder.name not in ("Caffe", "BigDL") and not accelerator_of(digits_folder):
        assert "pip install" in str(refused.value) or "Intel" in str(refused.value)


def test_an_engine_without_devices_is_refused(digit_folders):
    with pytest.raises(ModelError, match="Caffe reports no device but the cpu: it computes on the CPU alone; convert"):
        load_model(ModelOptions(str(digit_folders["Caffe"]), device="cuda"))


def test_a_handler_gets_the_device_of_the_first_engine():
    torch = pytest.importorskip("torch")
    assert device_of_handler(ModelOptions("/m")) == "cpu"
    assert device_of_handler(ModelOptions("/m", device="auto")) == ("cuda:0" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ModelError, match=r"device is cuda:99, and PyTorch .* reports"):
        device_of_handler(ModelOptions("/m", device="cuda:99"))


def test_the_driver_names_its_devices():
    assert cuda_driver_devices() == tuple(f"cuda:{index}" for index in range(len(cuda_driver_devices())))


@pytest.mark.skipif(bool(cuda_driver_devices()), reason="has a device that this test must not have")
class TestWithoutAccelerator:
    def test_onnx_runtime_that_cannot_start_cuda_is_refused(self, digit_folders, recwarn):
        from cluster_serving.job.models.detect import detect
        from cluster_serving.job.models.onnx import OnnxModel

        files = detect(digit_folders["ONNX Runtime"])
        with pytest.raises(ModelError, match="device is cuda:0, and ONNX Runtime .* cannot start its CUDAExecutionPro"):
            OnnxModel(files, ModelOptions(str(files.folder), device="cuda:0"))

    def test_a_graph_of_tensorflow_is_placed_on_its_device(self, digit_folders):
        from cluster_serving.job.models.detect import detect
        from cluster_serving.job.models.tensorflow.frozen_graph import FrozenGraph
        from cluster_serving.job.models.tensorflow.saved_model import SavedModel

        x = model_zoo.digits_data()[0][:5]
        for name, kind in (("TensorFlow", SavedModel), ("TensorFlow frozen graph", FrozenGraph)):
            files = detect(digit_folders[name])
            # Without a GPU, TensorFlow computes on the CPU what is placed there.
            model = kind(files, ModelOptions(str(files.folder), device="cuda:1"))
            devices = {operation.device for operation in model._session.graph.get_operations()}
            assert devices == {"/device:GPU:1"}
            np.testing.assert_allclose(model.predict([x])[0], model_zoo.digits_mlp(x), atol=1e-5)
            model.close()
