"""Times of a network of convolutions on the CPU and on the GPU, for each engine here: `python -m` this module."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.job.models import load_model
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ServingError
from tests.support.payloads import model_zoo
from tests.support.worlds.accelerators import accelerator_of

LAYERS, CHANNELS, SIZE = 8, 64, 64
"""2.4 billion operations per record, about those of a ResNet-34."""
BATCHES = (1, 32)
SECONDS = 5.0


def save_torch(folder: Path) -> None:
    import torch

    widths = [3, *[CHANNELS] * LAYERS]
    layers: list[Any] = []
    for inner, outer in pairwise(widths):
        layers += [torch.nn.Conv2d(inner, outer, 3, padding=1), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    model_zoo.save_torchscript(folder, network, torch.zeros(2, 3, SIZE, SIZE))


def save_tensorflow(folder: Path) -> None:
    import keras

    layers = [keras.layers.Conv2D(CHANNELS, 3, padding="same", activation="relu") for _ in range(LAYERS)]
    network = keras.Sequential([keras.Input((SIZE, SIZE, 3)), *layers, keras.layers.GlobalAveragePooling2D()])
    network.export(folder, verbose=False)


def save_onnx(folder: Path) -> None:
    from onnx import helper

    random, widths = np.random.default_rng(0), [3, *[CHANNELS] * LAYERS]
    nodes, weights, last = [], {}, "x"
    for index, (inner, outer) in enumerate(pairwise(widths)):
        weights[f"w{index}"] = random.normal(0, (9 * inner) ** -0.5, (outer, inner, 3, 3)).astype(np.float32)
        nodes.append(helper.make_node("Conv", [last, f"w{index}"], [f"c{index}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [last := f"r{index}"]))
    nodes.append(helper.make_node("ReduceMean", [last], ["y"], axes=[2, 3], keepdims=0))
    ports = {"x": ("FLOAT", ["n", 3, SIZE, SIZE])}, {"y": ("FLOAT", ["n", CHANNELS])}
    model_zoo.save_onnx(folder, nodes, *ports, weights)


def save_openvino(folder: Path) -> None:
    from cluster_serving.job.models.openvino.compiled import openvino

    save_onnx(folder)
    path = folder / "model.onnx"
    openvino.save_model(openvino.convert_model(path), folder / "model.xml")
    path.unlink()


ENGINES = {
    "PyTorch": ("torch", save_torch),
    "ONNX Runtime": ("onnxruntime", save_onnx),
    "TensorFlow": ("tensorflow", save_tensorflow),
    "OpenVINO": ("openvino", save_openvino),
}


def measure(name: str) -> list[str]:
    """Return the lines of an engine."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root, "model")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ENGINES[name][1](folder)
        gpu = accelerator_of(folder)
        lines, of_cpu = [], {}
        for device in filter(None, ("cpu", gpu)):
            try:
                model = load_model(ModelOptions(str(folder), device=device, thread_per_model=8))
            except ServingError as error:
                return [*lines, f"{name:<14}{device:<9}{error}"]
            shape = (3, SIZE, SIZE) if model.layout == "CHW" else (SIZE, SIZE, 3)
            for batch in BATCHES:
                seconds = _seconds(model, np.random.default_rng(0).random((batch, *shape), np.float32))
                of_cpu.setdefault(batch, seconds)
                faster = f"{of_cpu[batch] / seconds:>11.1f}"
                lines.append(f"{name:<14}{device:<9}{batch:>6}{seconds * 1e3:>11.2f}{batch / seconds:>12.0f}{faster}")
        return lines


def _seconds(model: Any, x: Any) -> float:
    """Return the median time of a call."""
    for _ in range(3):
        model.predict([x])
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        begin = time.perf_counter()
        model.predict([x])
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def main() -> None:
    """Print the table; each engine is measured in a process of its own, so that none has memory of another."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        return
    from importlib.util import find_spec

    print(f"{'engine':<14}{'device':<9}{'batch':>6}{'ms':>11}{'records/s':>12}{'to the CPU':>11}")
    for name, (package, _) in ENGINES.items():
        if find_spec(package) is None:
            continue
        command = [sys.executable, "-m", __spec__.name, name]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        lines = json.loads(done.stdout.splitlines()[-1]) if not done.returncode else [f"{name:<14}failed"]
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
