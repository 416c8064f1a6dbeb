from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.payloads import model_zoo, writers
from tests.support.payloads.engines.engine import HEIGHT, WIDTH, Engine, Shape


def save_twice(folder: Path, dtype: str, shape: Shape) -> None:
    text = f'input: "x"\ninput_shape {{ dim: 1 {" ".join(f"dim: {size}" for size in shape)} }}\n'
    text += 'layer { name: "y" type: "Concat" bottom: "x" bottom: "x" top: "y" }\n'
    writers.save_caffe(folder, text, {})


def save_row_means(folder: Path) -> None:
    text = f'input: "x"\ninput_shape {{ dim: 1 dim: 3 dim: {HEIGHT} dim: {WIDTH} }}\n'
    pooling = f"pooling_param {{ pool: AVE kernel_h: 1 kernel_w: {WIDTH} }}"
    text += writers.caffe_layer("Pooling", "x", "means", pooling)
    text += writers.caffe_layer("Flatten", "means", "y", "flatten_param { axis: 2 }")
    writers.save_caffe(folder, text, {})


def call(folder: Path, x: np.ndarray, output: str) -> Any:
    import cv2

    net = cv2.dnn.readNetFromCaffe(str(folder / "net.prototxt"), str(folder / "net.caffemodel"))
    net.setInput(x)
    return net.forward()


ENGINES = {
    "Caffe": Engine(
        "*.caffemodel",
        model_zoo.save_caffe_digits,
        save_twice,
        ("float32",),
        save_row_means,
        call,
    )
}
