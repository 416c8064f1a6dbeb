"""The command `cluster-serving-cli score`: a model over files, in processes of its own."""

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.config.versions import resolved
from cluster_serving.launcher.dead_commands import ConfigPath
from cluster_serving.launcher.services.supervisor import python_command
from cluster_serving.protocol import cgroup
from cluster_serving.settings.model import SettingsError

_PATH = Path(config_file.FILE_NAME)


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
    config_path: ConfigPath = _PATH,
) -> None:
    """Compute a model over files, without Flink and Redis: a row of output for each row of input.

    A row that fails has its error in the column `error`. Started again, the command goes on where it was interrupted.
    The keys of config.yaml for model, images and filters apply. The exit code is 1 if a file could not be scored.
    """
    config = config_file.read(config_path, missing_ok=config_path == _PATH)
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
    with subprocess.Popen(  # noqa: S603 - our own module, no shell
        python_command("cluster_serving.embed.score"), stdin=subprocess.PIPE, text=True
    ) as process:
        process.communicate(json.dumps(task))
        # Ctrl-C goes to both processes; this one waits for the other.
        with suppress(KeyboardInterrupt):
            process.wait()
    raise typer.Exit(process.returncode)


def _columns(text: str) -> tuple[str, list[str]]:
    name, mark, columns = text.partition("=")
    if not (name and mark and columns):
        raise SettingsError(f"--columns {text}: expected INPUT=COLUMN,… such as x=age,fare")
    return name, columns.split(",")
