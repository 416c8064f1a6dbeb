"""The program of `cluster-serving quickstart`: it serves handwritten digits on this machine and shows the predictions.

It makes a small model and images in a folder, and starts Redis, Flink, the job and the front end unless they run. Eight
threads then send the images with the Python client.
"""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rich.progress import track
from rich.table import Table
from rich.text import Text

from cluster_serving.client import InputQueue
from cluster_serving.launcher.quickstart.folder import JOB, Folder
from cluster_serving.launcher.terminal import console

SHOWN = 5
IN_FLIGHT = 8


class Prediction(NamedTuple):
    """The prediction for one image."""

    image: str
    label: int
    predicted: int
    probability: float
    milliseconds: float


def command(name: str) -> Path:
    """Return the path of a command of this installation."""
    return Path(sys.executable).with_name(name)


def shown(name: str) -> str:
    """Return a command as the user can type it: by its name if the shell finds it."""
    # uv, as in `uvx`, puts an environment on the PATH of the program alone that it runs.
    found = None if "UV" in os.environ else shutil.which(name)
    return name if found and Path(found).resolve() == command(name).resolve() else str(command(name))


def predict_all(port: int, images: list[tuple[Path, int]]) -> list[Prediction]:
    """Send every image and wait for its answer."""
    with InputQueue(port=port, name=JOB) as queue, ThreadPoolExecutor(IN_FLIGHT) as pool:

        def one(row: tuple[Path, int]) -> Prediction:
            path, label = row
            started = time.perf_counter()
            result = queue.predict({"image": {"path": str(path)}}, timeout=30)
            milliseconds = (time.perf_counter() - started) * 1000
            predicted, probability = result.top_n[0]
            return Prediction(path.name, label, predicted, probability, milliseconds)

        return list(track(pool.map(one, images), "Sending images", len(images), console=console, transient=True))


def show(predictions: list[Prediction], seconds: float) -> None:
    """Print the first predictions, and a summary of all."""
    table = Table("image", "predicted", "probability", "true label", "time")
    for item in predictions[:SHOWN]:
        colour = "green" if item.predicted == item.label else "red"
        table.add_row(
            item.image,
            Text(str(item.predicted), colour),
            f"{item.probability:.3f}",
            str(item.label),
            f"{item.milliseconds:.1f} ms",
        )
    console.print(table)
    right = sum(item.predicted == item.label for item in predictions)
    console.print(
        f"{right} of {len(predictions)} images right ({right / len(predictions):.1%}), "
        f"{len(predictions) / seconds:.0f} images/s with {IN_FLIGHT} in flight"
    )


def main(path: Path) -> None:
    """Serve the digits from a folder, and show predictions."""
    folder = Folder(path)
    folder.prepare()
    start = [str(command("cluster-serving-start")), "--http", "-c", str(folder.config_path)]
    if subprocess.run(start, check=False).returncode:  # noqa: S603 - our own command
        sys.exit(1)
    port, images = folder.config.redis_address.port, folder.images()
    started = time.perf_counter()
    predictions = predict_all(port, images)
    show(predictions, time.perf_counter() - started)
    # Not by the console, which would break lines that are to be copied.
    print(
        f"\nYour own image:  {sys.executable} {folder.program} {images[0][0]}\n"
        "                 (any size; a bright digit on a dark ground)\n"
        f"In a browser:    http://localhost:{folder.http_port}/ui\n"
        f"Stop:            {shown('cluster-serving-shutdown')} -c {folder.config_path}"
    )
