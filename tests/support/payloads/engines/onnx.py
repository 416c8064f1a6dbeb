from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.payloads import model_zoo
from tests.support.payloads.engines.engine import ALL, HEIGHT, WIDTH, Engine, Shape

TYPES = {"float32": "FLOAT", "int64": "INT64", "uint8": "UINT8", "bool": "BOOL", "str": "STRING"}
"""numpy's name → ONNX element type."""


def save_twice(folder: Path, dtype: str, shape: Shape) -> None:
    from onnx import helper

    node = helper.make_node("Concat", ["x", "x"], ["y"], axis=1)
    y = (TYPES[dtype], ["n", 2 * shape[0], *shape[1:]])
    model_zoo.save_onnx(folder, [node], {"x": (TYPES[dtype], ["n", *shape])}, {"y": y})


def save_row_means(folder: Path) -> None:
    from onnx import helper

    node = helper.make_node("ReduceMean", ["x"], ["y"], axes=[3], keepdims=0)
    ports = {"x": ("FLOAT", ["n", 3, HEIGHT, WIDTH])}, {"y": ("FLOAT", ["n", 3, HEIGHT])}
    model_zoo.save_onnx(folder, [node], *ports)


def save_doubled(folder: Path) -> None:
    from onnx import helper

    node = helper.make_node("Add", ["x", "x"], ["y"])
    model_zoo.save_onnx(folder, [node], {"x": ("FLOAT", ["n"])}, {"y": ("FLOAT", ["n"])})


def call(folder: Path, x: np.ndarray, output: str) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


ENGINES = {
    "ONNX Runtime": Engine("*.onnx", model_zoo.save_onnx_digits, save_twice, ALL, save_row_means, call, save_doubled)
}
