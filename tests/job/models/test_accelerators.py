"""Engines on a GPU, run by bench/gpu.sh where there is one: the answers are those of the CPU."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from tests.support.payloads import model_zoo
from tests.support.payloads.engines import ENGINES
from tests.support.worlds.accelerators import accelerated

pytestmark = pytest.mark.accelerator


@pytest.fixture(params=ENGINES)
def engine(request):
    """Name of an engine that reports a GPU."""
    if request.param not in accelerated():
        pytest.skip("the engine reports no GPU")
    return request.param


@pytest.fixture
def both(engine, tmp_path):
    """Loads a model that a function has written, on the CPU and on the GPU."""
    loaded = []

    def both(save, **options):
        folder = tmp_path / "model"
        save(folder)
        for device in ("cpu", accelerated()[engine]):
            loaded.append(load_model(ModelOptions(str(folder), device=device, **options)))
            assert loaded[-1].device == device
        return loaded

    yield both
    for model in loaded:
        model.close()


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_the_answer_is_that_of_the_cpu(engine, both, batch):
    x = model_zoo.digits_data()[0][:batch]
    on_cpu, on_gpu = both(ENGINES[engine].save_digits)
    (answer,) = on_gpu.predict([x])
    assert answer.dtype == np.float32
    assert answer.flags.writeable
    np.testing.assert_allclose(answer, on_cpu.predict([x])[0], atol=0.02)


def test_later_calls_do_not_change_an_answer(engine, both):
    x = model_zoo.digits_data()[0][:1]
    model = both(ENGINES[engine].save_digits)[1]
    (first,) = model.predict([x])
    kept = first.copy()
    for _ in range(10):
        model.predict([1 - x])
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool", "str"])
def test_every_dtype_comes_back(engine, both, dtype):
    if dtype not in ENGINES[engine].dtypes:
        pytest.skip("the format lacks the dtype")
    x = np.array([["a", "b", "ü"]], object) if dtype == "str" else np.array([[0, 1, 1]], dtype)
    model = both(lambda folder: ENGINES[engine].save_twice(folder, dtype, (3,)))[1]
    np.testing.assert_array_equal(model.predict([x])[0], np.concatenate([x, x], 1))


def test_images_are_computed(engine, both):
    on_cpu, on_gpu = both(ENGINES[engine].save_row_means)
    shape = (2, 3, 1, 24) if on_gpu.layout == "CHW" else (2, 1, 24, 3)
    x = np.random.default_rng(0).random(shape, np.float32)
    np.testing.assert_allclose(on_gpu.predict([x])[0], on_cpu.predict([x])[0], atol=0.02)


def test_two_slots_share_a_gpu_in_one_process(engine, tmp_path):
    ENGINES[engine].save_digits(tmp_path / "model")
    x = model_zoo.digits_data()[0][:8]
    slots = [load_model(ModelOptions(str(tmp_path / "model"), device="gpu", slot=slot)) for slot in range(4)]
    for model in slots:
        np.testing.assert_allclose(model.predict([x])[0], model_zoo.digits_mlp(x), atol=0.02)


LOST = """
import sys
import numpy as np
from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
model = load_model(ModelOptions(sys.argv[1], device="cuda:0"))
for index in (5, 1_000_000, 5):
    print(model.predict([np.array([index])])[0].shape, flush=True)
"""


def test_a_process_whose_gpu_refuses_all_calls_ends(engine, tmp_path):
    if engine != "TorchScript":
        pytest.skip("the kernels of other engines check their indices")
    import torch

    model_zoo.save_torchscript(tmp_path, torch.nn.Embedding(10, 4), torch.zeros(2, dtype=torch.int64))
    command = [sys.executable, "-c", LOST, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "(1, 4)\n")
    assert "PyTorch can use cuda:0 no more: ending this process" in done.stderr
