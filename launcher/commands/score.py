"""The command `cluster-serving-cli score`: a model over files, in processes of its own."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster_serving.job.models.folder import check_model
from cluster_serving.job.options import CPU, JobOptions
from cluster_serving.job.remote.url import absolute, is_url
from cluster_serving.launcher.commands import own_module
from cluster_serving.launcher.commands.arguments import CONFIG_PATH, ConfigPath
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config import repository
from cluster_serving.launcher.config.job_options import job_options, model_options
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.config.versions import resolved
from cluster_serving.launcher.jobs import few, preflight, scoring_job
from cluster_serving.launcher.jobs.layout.decision import Decider
from cluster_serving.launcher.targets import target_of
from cluster_serving.launcher.terminal import Progress
from cluster_serving.protocol.host import cgroup
from cluster_serving.settings.errors import SettingsError

_PROGRAM = "cluster_serving.embed.score"


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
        str | None, typer.Option("--keep", help="COLUMN,… to copy. Default: all that are not inputs.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Default: as measured for the service, on all cores.")
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", help="Compute through this job, while it has no other requests.")
    ] = None,
    flink: Annotated[
        bool,
        typer.Option("--flink", help="Compute in a batch job of Flink (flinkRestUrl), which is started if needed."),
    ] = False,
    share: Annotated[
        float,
        typer.Option("--share", min=0.0001, max=1, help="With --job: part of the time, while others use the job."),
    ] = 0.01,
    max_errors: Annotated[
        int | None, typer.Option("--max-errors", min=0, help="Exit with 1 if more rows have an error.")
    ] = None,
    config_path: ConfigPath = CONFIG_PATH,
) -> None:
    """Compute a model over files: a row of output for each row of input. Neither Flink nor Redis are needed.

    A row that fails has its error in the column `error`. Started again, the command goes on where it was interrupted.
    The keys of config.yaml for model, images and filters apply. The exit code is 1 if a file could not be scored, or if
    all rows have errors, or more than --max-errors.
    """
    config = config_file.read(config_path, missing_ok=config_path == CONFIG_PATH)
    if job and (model or flink):
        raise SettingsError("--job has a model and a Flink already; leave out --model and --flink")
    if model is not None:
        config = repository.model_in(config, model)
    task: dict[str, Any] = {
        "input": source,
        "output": output,
        "inputs": dict(map(_columns, columns or [])),
        "max_errors": max_errors,
        "keep": None if keep is None else [name for name in keep.split(",") if name],
    }
    # The program imports its packages while the model is looked at.
    with own_module.started(_PROGRAM, is_early=True) as program:
        if job:
            program(task | {"job": job, "redis": config.redis_url, "share": share})
        with Progress():
            here = not flink or target_of(config).is_here
            task |= _model_of(config, processes, here, is_measured=not few.are_few(source))
            if flink:
                task |= {"input": absolute(source), "output": absolute(output)}
                task |= {"flink": scoring_job.submitted(config, task)}
        try:
            program(task)
        finally:
            if flink:
                target_of(config).reclaim()


def _model_of(config: Config, processes: int | None, here: bool, is_measured: bool) -> dict[str, object]:
    """Return the fields of a task for a model that its own processes compute."""
    repository.refuse(config, "name the folder of one, as in --model {model}, or a model that runs with --job")
    config = resolved(config)
    if here and not is_url(config.model_path):
        check_model(model_options(config))
    secret = preflight.secret_of(config)
    options, copies = _laid_out(config, secret, processes, here, is_measured)
    sized = config.max_batch_size is not None
    return {"options": options.to_json(), "sized": sized, "processes": copies, "secret": secret}


def _laid_out(
    config: Config, secret: tuple[str, str], processes: int | None, here: bool, is_measured: bool
) -> tuple[JobOptions, int]:
    """Return the options with the threads of a copy, and the number of copies, by the measurement of the service.

    On the CPUs of this machine, copies are added until all cores have a thread: each also reads and writes. What
    computes elsewhere is not measured, and nothing is for few rows.
    """
    options, cores = replace(job_options(config, "score"), execution_mode="process"), cgroup.cores()
    if processes or not here:
        copies = processes or config.model_parallelism or 1
        threads = config.thread_per_model or (max(1, cores // copies) if here else 1)
    else:
        decider = Decider(config.model_copy(update={"prefer": "throughput"}), options, secret)
        layout = decider.decide() if is_measured else decider.known()
        threads = layout.threads
        copies = max(layout.copies, cores // threads) if options.model.device == CPU else layout.copies
    return replace(options, model=replace(options.model, thread_per_model=threads)), copies


def _columns(text: str) -> tuple[str, list[str]]:
    name, mark, columns = text.partition("=")
    if not (name and mark and columns):
        raise SettingsError(f"--columns {text}: expected INPUT=COLUMN,… such as x=age,fare")
    return name, columns.split(",")
