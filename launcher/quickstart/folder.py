"""The folder of the quick start: a model, images, and a configuration with ports that are free."""

import csv
import socket
from pathlib import Path
from typing import NamedTuple

from cluster_serving.client import quick_start
from cluster_serving.frontend import main as front_end
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.entry_points import load
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import state
from cluster_serving.launcher.terminal import console
from cluster_serving.settings.errors import SettingsError

JOB = "digits"


class Folder(NamedTuple):
    """The folder, which `prepare` fills."""

    path: Path

    @property
    def config_path(self) -> Path:
        """The file of the configuration."""
        return self.path / config_file.FILE_NAME

    @property
    def program(self) -> Path:
        """A program that sends images to the job, as the original had it."""
        return self.path / "quick_start.py"

    @property
    def config(self) -> Config:
        """The configuration, or the defaults if there is none yet."""
        return config_file.read(self.config_path, missing_ok=True)

    @property
    def http_port(self) -> int:
        """The port of the front end, or the default."""
        given = ["-c", str(self.config_path)] if self.config_path.exists() else []
        return front_end.read_options(given).port

    def prepare(self) -> None:
        """Make the model and the images unless they exist, and write the configuration.

        Raises:
            SettingsError: If the folder has files that the quick start has not made.
        """
        if not (self.path / "labels.csv").exists():
            if self.path.is_dir() and any(self.path.iterdir()):
                raise SettingsError(
                    f"{self.path} has files that are not those of a quick start; name a new folder, as in "
                    "cluster-serving quickstart FOLDER, or remove it if a quick start was interrupted"
                )
            load("launcher.quickstart.digits", "main", "quickstart")(self.path)
        redis = usable_port(self.config.redis_address.port, "redis")
        flink = usable_port(self.config.flink_address.port, "flink")
        http = usable_port(self.http_port, "http")
        self.config_path.write_text(
            "# Written by cluster-serving quickstart; cluster-serving-init writes a file with every key explained.\n"
            f"modelPath: model\njobName: {JOB}\nimageResize: 8,8\npostProcessing: topN(3)\n"
            f"redisUrl: localhost:{redis}\nflinkRestUrl: localhost:{flink}\nhttp:\n  port: {http}\n",
            "utf8",
        )
        program = Path(quick_start.__file__).read_text("utf8")
        self.program.write_text(program.replace(f"PORT = {quick_start.PORT}", f"PORT = {redis}"), "utf8")

    def images(self) -> list[tuple[Path, int]]:
        """Return the images and their labels."""
        with (self.path / "labels.csv").open(newline="") as file:
            return [(self.path / "images" / name, int(label)) for name, label in list(csv.reader(file))[1:]]


def usable_port(preferred: int, service: str) -> int:
    """Return the preferred port if it is free or our own service uses it; otherwise print and return the next one."""
    for port in range(preferred, preferred + 100):
        # The records of processes; logs stay after cluster-serving-shutdown.
        if any((state.root() / f"{service}-{port}").glob("*.json")) or _is_free(port):
            if port != preferred:
                console.print(f"Port {preferred} is in use; {service} gets {port} instead.")
            return port
    raise LaunchError(f"no port from {preferred} to {preferred + 99} is free for {service}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
