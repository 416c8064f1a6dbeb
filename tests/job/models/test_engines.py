"""Behaviour of every engine, with the same network in each format."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ModelError
from tests.support.payloads import model_zoo
from tests.support.payloads.engines import ENGINES

X = np.arange(64, dtype=np.float32)[np.newaxis] / 64
# OpenVINO computes in bfloat16 where the processor can; its probabilities are then off by 0.01.
TOLERANCE = {"atol": 0.02}


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_the_answer_is_that_of_the_network(digits_folder, batch):
    x = model_zoo.digits_data()[0][:batch]
    model = load_model(ModelOptions(str(digits_folder)))
    (probabilities,) = model.predict([x])
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities, model_zoo.digits_mlp(x), **TOLERANCE)
    model.close()


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_the_answer_is_exactly_that_of_the_engine_called_directly(digits_folder, batch):
    x = model_zoo.digits_data()[0][:batch]
    (answer,) = load_model(ModelOptions(str(digits_folder))).predict([x])
    expected = ENGINES[digits_folder.name].call(digits_folder, x, "probabilities")
    np.testing.assert_allclose(answer, np.asarray(expected), rtol=1e-5, atol=1e-6)


def test_a_loaded_model_says_what_it_takes(digits_folder):
    model = load_model(ModelOptions(str(digits_folder), input_shapes=((64,),)))
    assert model.engine == digits_folder.name
    assert model.layout == ("HWC" if model.engine.startswith(("TensorFlow", "Keras")) else "CHW")
    assert model.describe() == "the model expects x: float32[?, 64]"
    assert [spec.dtype for spec in model.outputs] == ["float32"]


def test_a_contradiction_to_the_options_is_refused(digits_folder):
    with pytest.raises((ModelError, InferenceFailed), match="63"):
        # A job does the second at its start, too; the files of BigDL have no shapes to compare with.
        load_model(ModelOptions(str(digits_folder), input_shapes=((63,),))).warm_up(1)
    with pytest.raises(ModelError, match="no input 'pixels'.* x"):
        load_model(ModelOptions(str(digits_folder), inputs=("pixels",)))


def test_later_calls_do_not_change_an_answer(digits_folder):
    model = load_model(ModelOptions(str(digits_folder)))
    (first,) = model.predict([X])
    kept = first.copy()
    for _ in range(10):
        model.predict([1 - X])
    np.testing.assert_array_equal(first, kept)


def test_read_only_and_strided_inputs_are_computed(digits_folder):
    model = load_model(ModelOptions(str(digits_folder)))
    read_only = np.frombuffer(X.tobytes(), np.float32).reshape(X.shape)
    strided = np.repeat(X, 2, axis=1)[:, ::2]
    for x in (read_only, strided):
        np.testing.assert_array_equal(model.predict([x])[0], model.predict([X])[0])


def test_a_model_is_warmed_up(digits_folder):
    model = load_model(ModelOptions(str(digits_folder), input_shapes=((64,),)))
    assert model.warm_up(4)


@pytest.mark.parametrize(
    "garbage",
    [
        np.zeros((2, 63), np.float32),
        np.zeros((2, 1, 64), np.float32)[:, :, :1],
        np.zeros(2, np.float32),
        np.full((2, 64), "text", object),
    ],
)
def test_garbage_fails_and_the_next_request_is_answered(digits_folder, garbage):
    model = load_model(ModelOptions(str(digits_folder)))
    # TorchScript tells no types of inputs, so a text is found when the model gets it.
    with pytest.raises((InferenceFailed, InvalidInput), match="the model expects x: |input 'x' is a text, 'text'"):
        model.predict([garbage])
    np.testing.assert_allclose(model.predict([X])[0], model_zoo.digits_mlp(X), **TOLERANCE)


def test_a_name_that_the_model_lacks_is_refused_with_those_it_has(digits_folder):
    with pytest.raises(ModelError, match="the model has no input 'nope'; its inputs are x"):
        load_model(ModelOptions(str(digits_folder), inputs=("nope",)))
    with pytest.raises(ModelError, match=r"the model has no output 'nope'; its outputs are (probabilities|output)"):
        load_model(ModelOptions(str(digits_folder), outputs=("nope",)))


@pytest.mark.parametrize("content", [b"", b"garbage" * 100])
def test_a_damaged_file_is_refused_with_its_name(digits_folder, tmp_path, content):
    folder = tmp_path / "damaged"
    shutil.copytree(digits_folder, folder)
    file = next(folder.glob(ENGINES[digits_folder.name].model_file))
    for path in (file, *folder.glob("fingerprint.pb")):
        path.write_bytes(content)
    file = folder / "saved_model.pb" if (folder / "saved_model.pb").exists() else file
    with pytest.raises(ModelError, match=str(file)):
        load_model(ModelOptions(str(folder)))


def test_weights_that_are_cut_off_are_refused(digits_folder, tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(digits_folder, folder)
    file = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    if file.name == "saved_model.pb":
        file = next(folder.glob("variables/*.data-*"))
    file.write_bytes(file.read_bytes()[:-500])
    with pytest.raises(ModelError):
        load_model(ModelOptions(str(folder)))


def test_overwriting_the_files_does_not_change_a_loaded_model(digits_folder, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(digits_folder, folder)
    model = load_model(ModelOptions(str(folder)))
    for path in folder.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)
    np.testing.assert_allclose(model.predict([X])[0], model_zoo.digits_mlp(X), **TOLERANCE)


def test_copies_in_threads_of_one_process_do_not_disturb_one_another(digit_folders):
    x = model_zoo.digits_data()[0]

    def serve(index: int) -> None:
        folder = list(digit_folders.values())[index % len(digit_folders)]
        model = load_model(ModelOptions(str(folder), thread_per_model=1 + index % 2))
        rng = np.random.default_rng(index)
        for _ in range(30):
            rows = rng.integers(0, len(x), rng.integers(1, 20))
            np.testing.assert_allclose(model.predict([x[rows]])[0], model_zoo.digits_mlp(x[rows]), **TOLERANCE)
        model.close()

    with ThreadPoolExecutor(6) as pool:
        for future in [pool.submit(serve, index) for index in range(2 * len(digit_folders))]:
            future.result()


# The other TensorFlow formats run in the same session, the other PyTorch formats with the same setting.
MEASURED = ("OpenVINO", "TensorFlow", "TorchScript", "ONNX Runtime")
# TensorFlow's pool of several threads is helped by the thread that calls; how much depends on how busy the machine is.
HELPED = ("TensorFlow",)


@pytest.fixture(scope="module")
def heavy_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Engine → folder of a model x: float32 [?, 512] that computes long enough to see which threads do."""
    import tensorflow as tf
    import torch
    from onnx import helper

    root = tmp_path_factory.mktemp("heavy")
    weights = [np.random.default_rng(layer).normal(0, 0.04, (512, 512)).astype(np.float32) for layer in range(8)]

    ops = model_zoo.digits().ops
    x = h = ops.parameter([-1, 512], np.float32)
    for w in weights:
        h = ops.relu(ops.matmul(h, ops.constant(w), False, False))
    model_zoo.save_openvino(root / "OpenVINO", {"x": x}, {"y": h})

    tensors = [torch.from_numpy(w) for w in weights]

    class Heavy(torch.nn.Module):
        def forward(self, x):
            for w in tensors:
                x = torch.relu(x @ w)
            return x

    model_zoo.save_torchscript(root / "TorchScript", Heavy(), torch.zeros(2, 512))

    def heavy(x):
        for w in weights:
            x = tf.nn.relu(x @ tf.constant(w))
        return {"y": x}

    model_zoo.save_savedmodel(root / "TensorFlow", heavy, tf.TensorSpec([None, 512], tf.float32, "x"))

    nodes = []
    for index in range(len(weights)):
        nodes.append(helper.make_node("MatMul", [f"h{index}", f"w{index}"], [f"z{index}"]))
        nodes.append(helper.make_node("Relu", [f"z{index}"], [f"h{index + 1}"]))
    model_zoo.save_onnx(
        root / "ONNX Runtime",
        nodes,
        {"h0": ("FLOAT", ["n", 512])},
        {f"h{len(weights)}": ("FLOAT", ["n", 512])},
        {f"w{index}": w for index, w in enumerate(weights)},
    )
    return {engine: root / engine for engine in MEASURED}


MEASURE = """
import json, os, sys, time
import numpy as np
from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions

def ticks():
    spent = {}
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        spent[thread] = int(fields[11]) + int(fields[12])
    return spent

x = np.random.default_rng(0).random((512, 512), np.float32)
result = {}
for threads in map(int, sys.argv[2:]):
    model = load_model(ModelOptions(sys.argv[1], thread_per_model=threads))
    for _ in range(3):
        model.predict([x])
    before, start = ticks(), time.process_time()
    while time.process_time() - start < 1:
        model.predict([x])
    spent = [after - before.get(thread, 0) for thread, after in ticks().items()]
    result[threads] = sum(part > 0.1 * sum(spent) for part in spent)
free = len(os.sched_getaffinity(0))
result["pinned"] = sum(len(os.sched_getaffinity(int(thread))) < free for thread in os.listdir("/proc/self/task"))
print(json.dumps(result))
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
@pytest.mark.parametrize("engine", MEASURED)
def test_a_copy_computes_with_as_many_threads_as_it_may(engine, heavy_folders):
    """Counts the threads that do the work, one copy after another in a process of its own."""
    command = [sys.executable, "-c", MEASURE, str(heavy_folders[engine]), "1", "2"]
    for _ in range(8):  # where others keep the cores busy, one thread may do the work of two
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        busy = json.loads(run.stdout.splitlines()[-1])
        assert busy["1"] == 1
        assert busy["2"] <= 2 + (engine in HELPED)
        assert busy["pinned"] == 0
        if busy["2"] >= 2:
            return
    raise AssertionError("two threads were allowed, and one did all the work")
