from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.payloads import model_zoo
from tests.support.payloads.engines.engine import HEIGHT, NUMBERS, WIDTH, Engine, Shape


def save_twice(folder: Path, dtype: str, shape: Shape) -> None:
    ops = model_zoo.digits().ops
    x = ops.parameter([-1, *shape], np.dtype(dtype).type)
    model_zoo.save_openvino(folder, {"x": x}, {"y": ops.concat([x, x], 1)})


def save_row_means(folder: Path) -> None:
    ops = model_zoo.digits().ops
    x = ops.parameter([-1, 3, HEIGHT, WIDTH], np.float32)
    model_zoo.save_openvino(folder, {"x": x}, {"y": ops.reduce_mean(x, ops.constant([3]))})


def save_doubled(folder: Path) -> None:
    ops = model_zoo.digits().ops
    x = ops.parameter([-1], np.float32)
    model_zoo.save_openvino(folder, {"x": x}, {"y": ops.add(x, x)})


def call(folder: Path, x: np.ndarray, output: str) -> Any:
    import openvino

    return openvino.Core().compile_model(next(folder.glob("*.xml")), "CPU")(x)[0]


ENGINES = {
    "OpenVINO": Engine(
        "*.xml",
        model_zoo.save_openvino_digits,
        save_twice,
        NUMBERS,
        save_row_means,
        call,
        save_doubled,
    )
}
