"""The program of `make quickstart`: it serves handwritten digits on this machine and shows the predictions.

It makes a small model and images in `.quickstart/`, and starts Redis, Flink and the job unless they run. Eight threads
then send the images with the Python client.
"""

import csv
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import track
from rich.table import Table

from cluster_serving.client import InputQueue
from cluster_serving.launcher.services import state

FOLDER = Path(".quickstart")
CONFIG = FOLDER / "config.yaml"
JOB = "digits"
SHOWN = 12
IN_FLIGHT = 8

console = Console()


class Prediction(NamedTuple):
    """The prediction for one image."""

    image: str
    label: int
    predicted: int
    probability: float
    milliseconds: float


def usable_port(preferred: int, setting: str, service: str) -> int:
    """Return the preferred port if it is free or our own service uses it; otherwise print and return the next one."""
    for port in range(preferred, preferred + 100):
        # The records of processes; logs stay after cluster-serving-shutdown.
        if not any((state.root() / f"{service}-{port}").glob("*.json")):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
        if port != preferred:
            console.print(f"Port {preferred} is in use; {setting} in {CONFIG} is {port} instead.")
        return port
    raise SystemExit(f"No port from {preferred} to {preferred + 99} is free; set {setting} in {CONFIG} yourself.")


def prepare() -> None:
    """Make the model and the images unless they exist, and write the configuration."""
    if not (FOLDER / "labels.csv").exists():
        subprocess.run([sys.executable, "examples/digits.py", str(FOLDER)], check=True)  # noqa: S603 - our own script
    redis_port = usable_port(int(port_of("redisUrl", "6379")), "redisUrl", "redis")
    flink_port = usable_port(int(port_of("flinkRestUrl", "8081")), "flinkRestUrl", "flink")
    CONFIG.write_text(
        "# Written by make quickstart; cluster-serving-init writes a configuration with every key explained.\n"
        f"modelPath: model\njobName: {JOB}\nimageResize: 8,8\npostProcessing: topN(3)\n"
        f"redisUrl: localhost:{redis_port}\nflinkRestUrl: localhost:{flink_port}\n",
        "utf8",
    )


def command(name: str, *arguments: str, quiet: bool = False) -> bool:
    """Run one of the installed commands, and return True if it succeeds."""
    output = subprocess.DEVNULL if quiet else None
    path = str(Path(sys.executable).parent / name)
    return subprocess.run([path, *arguments], check=False, stdout=output, stderr=output).returncode == 0  # noqa: S603


def port_of(key: str, default: str = "") -> str:
    """Return the port of an address in the configuration."""
    text = CONFIG.read_text("utf8") if CONFIG.exists() else ""
    lines = (line.partition(": ") for line in text.splitlines())
    return next((address.rpartition(":")[2] for name, _, address in lines if name == key), default)


def predict_all(port: int) -> list[Prediction]:
    """Send every image and wait for its answer."""
    with (FOLDER / "labels.csv").open(newline="") as file:
        rows = [(row[0], int(row[1])) for row in csv.reader(file) if row[1].isdigit()]
    with InputQueue(port=port, name=JOB) as queue, ThreadPoolExecutor(IN_FLIGHT) as pool:

        def one(row: tuple[str, int]) -> Prediction:
            name, label = row
            started = time.perf_counter()
            result = queue.predict({"image": {"path": str(FOLDER / "images" / name)}}, timeout=30)
            milliseconds = (time.perf_counter() - started) * 1000
            predicted, probability = result.top_n[0]
            return Prediction(name, label, predicted, probability, milliseconds)

        return list(track(pool.map(one, rows), "Sending images", len(rows), console=console, transient=True))


def show(predictions: list[Prediction], seconds: float) -> None:
    """Print the first predictions, and a summary of all."""
    table = Table("image", "predicted", "probability", "true label", "time")
    for item in predictions[:SHOWN]:
        colour = "green" if item.predicted == item.label else "red"
        table.add_row(
            item.image,
            f"[{colour}]{item.predicted}[/]",
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


def main() -> None:
    prepare()
    config = ("-c", str(CONFIG))
    running = command("cluster-serving-cli", "status", JOB, *config, quiet=True)
    if not running and not command("cluster-serving-start", *config):
        raise SystemExit(1)
    port = int(port_of("redisUrl"))
    started = time.perf_counter()
    predictions = predict_all(port)
    show(predictions, time.perf_counter() - started)
    print(
        f"\nFlink UI:        http://localhost:{port_of('flinkRestUrl')}\n"
        f"Your own image:  .venv/bin/python examples/predict.py {FOLDER}/images/{predictions[0].image} --port {port}\n"
        "                 (any size; a bright digit on a dark ground)\n"
        "Stop:            make stop"
    )


if __name__ == "__main__":
    main()
