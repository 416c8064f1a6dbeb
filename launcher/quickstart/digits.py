"""Make a model and images to try Cluster Serving: handwritten digits of 8 x 8 pixels, from scikit-learn.

Usage: python -m cluster_serving.launcher.quickstart.digits [FOLDER]

FOLDER (default: digits) then holds
- model/: an OpenVINO model of images, for `modelPath`; it needs `imageResize: "8,8"`
- images/: PNG files of 64 x 64 pixels that were not used for training, such as 0007_label3.png
- labels.csv: the file name and the digit of each image
"""

import csv
import sys
from pathlib import Path
from typing import NamedTuple

# Importing OpenVINO would fork a child that reports the import over the network.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import cv2  # noqa: E402
import numpy as np  # noqa: E402
import openvino  # noqa: E402
from openvino import opset13 as ops  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.neural_network import MLPClassifier  # noqa: E402

from cluster_serving.protocol.inputs import Array  # noqa: E402

HELD_OUT = 400
SCALE = 8  # pixels of a PNG per pixel of a digit


class Digits(NamedTuple):
    """Digits and their labels.

    Attributes:
        x: Brightness from 0 to 1, row by row; float32 (n, 64).
        y: The digits; int64 (n,).
    """

    x: Array
    y: Array


Weights = list[tuple[Array, Array]]
"""The matrix (inputs, outputs) and the bias (outputs,) of each layer, float32."""


def read() -> tuple[Digits, Digits]:
    """Read the digits: 1397 for training, and 400 held out."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    digits = Digits((data.data / 16).astype(np.float32)[order], data.target.astype(np.int64)[order])
    return Digits(*(part[:-HELD_OUT] for part in digits)), Digits(*(part[-HELD_OUT:] for part in digits))


def train(digits: Digits) -> Weights:
    """Train a network with one hidden layer of 64, in a second or two."""
    network = MLPClassifier((64,), learning_rate_init=0.01, early_stopping=True, random_state=0).fit(digits.x, digits.y)
    layers = zip(network.coefs_, network.intercepts_, strict=True)
    return [(matrix.astype(np.float32), bias.astype(np.float32)) for matrix, bias in layers]


def save_model(folder: Path, weights: Weights, takes_images: bool) -> None:
    """Write the network as `digits.xml` and `digits.bin`.

    The input `x` is float32 [?, 64] from 0 to 1; if the network `takes_images`, [?, 3, 8, 8] from 0 to 255. The output
    `probabilities` is float32 [?, 10].
    """
    x = ops.parameter([-1, 3, 8, 8] if takes_images else [-1, 64], np.float32, name="x")
    values = x
    if takes_images:
        grey = ops.divide(ops.reduce_mean(x, [1], keep_dims=False), ops.constant(np.float32(255)))
        values = ops.reshape(grey, [-1, 64], special_zero=False)
    *hidden, (matrix, bias) = weights
    for w, b in hidden:
        values = ops.relu(ops.add(ops.matmul(values, ops.constant(w), False, False), ops.constant(b)))
    probabilities = ops.softmax(ops.add(ops.matmul(values, ops.constant(matrix), False, False), ops.constant(bias)), 1)
    x.output(0).set_names({"x"})
    probabilities.output(0).set_names({"probabilities"})
    folder.mkdir(parents=True, exist_ok=True)
    openvino.save_model(openvino.Model([probabilities], [x], "digits"), folder / "digits.xml", compress_to_fp16=False)


def save_images(folder: Path, digits: Digits) -> list[Path]:
    """Write each digit as a grey PNG file of 64 x 64 pixels, and return the files in order."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, (x, label) in enumerate(zip(*digits, strict=True)):
        pixels = np.round(x * 255).astype(np.uint8).reshape(8, 8)
        files.append(folder / f"{number:04}_label{label}.png")
        cv2.imwrite(str(files[-1]), pixels.repeat(SCALE, axis=0).repeat(SCALE, axis=1))
    return files


def main(folder: Path) -> None:
    """Write the model, the images and their labels into a folder."""
    training, held_out = read()
    print(f"Training a small network on {len(training.y)} handwritten digits", flush=True)
    save_model(folder / "model", train(training), takes_images=True)
    files = save_images(folder / "images", held_out)
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "label"), *((f.name, y) for f, y in zip(files, held_out.y, strict=True))])
    print(
        f"Wrote the model to {folder / 'model'}, {len(files)} other images to {folder / 'images'}, and labels.csv",
        flush=True,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "digits"))
