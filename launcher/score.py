"""The command `cluster-serving-cli score`: a model over files, in processes of its own."""

from pathlib import Path
from typing import Annotated

import typer

from cluster_serving.launcher import own_module
from cluster_serving.launcher.arguments import CONFIG_PATH, ConfigPath
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.config.versions import resolved
from cluster_serving.protocol import cgroup
from cluster_serving.settings.model import SettingsError


def score(
    source: Annotated[
        str,
        typer.Option("--input", help="File, folder or pattern: Parquet, CSV, JSON lines, images."),
    ],
    output: Annotated[str, typer.Option("--output", help="Folder for the answers, as Parquet.")],
    model: Annotated[Path | None, typer.Option("--model", help="Default: modelPath of config.yaml.")] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--columns", help="INPUT=COLUMN,…, once for each. Default: the columns of their names."),
    ] = None,
    keep: Annotated[
        str | None, typer.Option("--keep", help="COLUMN,… to copy. Default: all that are no inputs.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Default: the cores, divided by threadPerModel.")
    ] = None,
    config_path: ConfigPath = CONFIG_PATH,
) -> None:
    """Compute a model over files, without Flink and Redis: a row of output for each row of input.

    A row that fails has its error in the column `error`. Started again, the command goes on where it was interrupted.
    The keys of config.yaml for model, images and filters apply. The exit code is 1 if a file could not be scored.
    """
    config = config_file.read(config_path, missing_ok=config_path == CONFIG_PATH)
    if model is not None:
        config = config.model_copy(update={"model_path": str(model.absolute())})
    options = job_options(resolved(config), "score")
    task = {
        "options": options.to_json(),
        "sized": config.max_batch_size is not None,
        "input": source,
        "output": output,
        "inputs": dict(map(_columns, columns or [])),
        "keep": None if keep is None else [name for name in keep.split(",") if name],
        "processes": processes or max(1, cgroup.cores() // options.model.thread_per_model),
    }
    own_module.run("cluster_serving.embed.score", task)


def _columns(text: str) -> tuple[str, list[str]]:
    name, mark, columns = text.partition("=")
    if not (name and mark and columns):
        raise SettingsError(f"--columns {text}: expected INPUT=COLUMN,… such as x=age,fare")
    return name, columns.split(",")
