"""The commands that show what happens inside: `cluster-serving-cli metrics`."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.dead_commands import ConfigPath
from cluster_serving.launcher.jobs.store import opened
from cluster_serving.launcher.services import redis_server
from cluster_serving.protocol.exposition import exposition

JobName = Annotated[str | None, typer.Argument(help="jobName; default: that of the configuration file.")]

_PATH = Path(config_file.FILE_NAME)

Read = Callable[[Path], Config]
Named = Callable[["str | None", Config, Path], str]


def commands(read: Read, named: Named) -> dict[str, Callable[..., None]]:
    """Return the commands by name; `named` returns the job that a command means."""

    def metrics(job: JobName = None, config_path: ConfigPath = _PATH) -> None:
        """Print the metrics of a job in the text format of Prometheus, as the front end's /metrics has them."""
        config = read(config_path)
        redis_server.check(config)
        with opened(config, named(job, config, config_path)) as store:
            print(exposition([store.reading()]), end="")

    return {"metrics": metrics}
