"""The command `cluster-serving-cli try`: a handler or a model on one record, in the foreground."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from cluster_serving.launcher.commands import own_module
from cluster_serving.launcher.commands.arguments import CONFIG_PATH, ConfigPath
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config import repository
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.config.versions import resolved


def try_(
    folder: Annotated[Path | None, typer.Argument(help="Model folder; default: modelPath of config.yaml.")] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "-i",
            "--input",
            help="NAME=VALUE of an input, once for each: JSON, a text, or @file (.npy, .json, .txt, an image). "
            "Default: zeros, where the inputs are known.",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End after the first run; without a terminal it always does.")
    ] = False,
    config_path: ConfigPath = CONFIG_PATH,
) -> None:
    """Run a model folder on one record, without Flink and Redis, and again whenever a file of the folder is saved.

    It shows the outputs, or the full traceback. The keys of config.yaml for model, images and batches apply. The exit
    code is 1 if the last run failed.
    """
    config = config_file.read(config_path, missing_ok=config_path == CONFIG_PATH)
    if folder is not None:
        config = repository.model_in(config, folder)
    repository.refuse(config, "name the folder of one, such as cluster-serving-cli try {model}")
    given = {
        "options": job_options(resolved(config), "local-run").to_json(),
        "inputs": inputs or [],
        "watch": not once and sys.stdout.isatty(),
    }
    own_module.run("cluster_serving.job.programs.dev_runner", given)
