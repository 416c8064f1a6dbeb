"""Arguments that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

from cluster_serving.launcher.config import file as config_file

CONFIG_PATH = Path(config_file.FILE_NAME)
"""Default of `ConfigPath`."""

ConfigPath = Annotated[
    Path, typer.Option("-c", "--config-path", "--config_path", help="The configuration file.", show_default=True)
]
JobName = Annotated[
    str | None, typer.Argument(help="jobName; default: that of the configuration file, or the only job.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
