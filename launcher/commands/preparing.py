"""The commands before a start: init, quickstart, package and tune."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from cluster_serving.launcher import entry_points, origins, templates
from cluster_serving.launcher.command_log import log, say, warn
from cluster_serving.launcher.commands import report
from cluster_serving.launcher.commands.arguments import CONFIG_PATH, ConfigPath, logged_config
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config import repository
from cluster_serving.launcher.config.job_options import job_options
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import preflight
from cluster_serving.launcher.jobs.layout.decision import Decider, Tuned
from cluster_serving.launcher.jobs.layout.measuring import NotMeasured
from cluster_serving.launcher.jobs.lifecycle import checked, is_running
from cluster_serving.launcher.origins import sentence_transformers
from cluster_serving.launcher.origins.taken import Taken
from cluster_serving.launcher.shipping import bundle as shipping
from cluster_serving.launcher.targets import target_of
from cluster_serving.launcher.terminal import Progress, console, printable
from cluster_serving.settings.errors import SettingsError


def init(
    config_path: ConfigPath = CONFIG_PATH,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")] = False,
    handler: Annotated[
        bool, typer.Option("--handler", help="Also write model/handler.py, code around the model, with a test.")
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIRECTORY",
            help="Take over models and their settings: a *.mar of TorchServe, a folder (or its *.zip or *.tar.gz) of "
            "Triton, TensorFlow Serving, MLflow, BentoML or Hugging Face, or a manifest of KServe or Seldon Core.",
        ),
    ] = None,
) -> None:
    """Write a configuration file with every key explained, and make a folder for the model."""
    with origins.opened(source) if source else nullcontext() as taken:
        _write(config_path, force, handler, taken)


def _write(config_path: Path, force: bool, handler: bool, taken: Taken | None) -> None:
    model = config_path.parent / "model"
    beside = Taken(f"the files of sentence-transformers in {model}")
    sentence_transformers.take(beside, model)
    known = (taken or beside).keys
    text = config_file.template(known)
    try:
        if config_path.exists() and not force and config_path.read_bytes() != text.encode():
            raise SettingsError(f"{config_path} exists already; edit it, or use --force to overwrite it")
        if taken:
            taken.write(model, force)
        if "modelPath" not in known:
            model.mkdir(parents=True, exist_ok=True)
        config_path.parent.mkdir(parents=True, exist_ok=True)
        _replace(config_path.resolve(), text)
        written = templates.write(model, force) if handler else []
    except OSError as error:
        raise LaunchError(f"cannot write {config_path}: {error.strerror}") from None
    for line in taken.report() if taken else ():
        console.print(printable(line))
    put = "Look through it" if taken else f"Put a model into {model}"
    console.print(f"Wrote {config_path}. {put}, then run cluster-serving-start.")
    if known and not taken:
        console.print(f"Set {', '.join(known)}, as {beside.origin} say.")
    for line in beside.left if not taken else ():
        console.print(printable(f"  left  {line}"))
    for path in written:
        console.print(f"Wrote {path}.")
    if written:
        console.print("Both are examples: replace what the handler computes, and what its tests expect.")


def quickstart(
    folder: Annotated[Path, typer.Argument(help="Where to write the model and config.yaml.")] = Path("quickstart"),
) -> None:
    """Serve a first model, which reads handwritten digits: make it, start all that it needs, and send it images."""
    # Imported when it is called: the other commands need no client.
    entry_points.load("launcher.quickstart.main", "main", "quickstart")(folder)


def package(
    config_path: ConfigPath = CONFIG_PATH,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the archives.")] = Path(),
) -> None:
    """Write the archives that a job brings to a cluster: Python with its packages, and the model.

    For those who put them into an image or onto a shared file system themselves.
    """
    config = logged_config(config_path)
    with Progress():
        archives = shipping.write(config, output)
    for archive in archives:
        console.print(f"Wrote {archive}, {archive.stat().st_size / 1e6:.0f} MB")


def tune(
    config_path: ConfigPath = CONFIG_PATH,
    seconds: Annotated[
        float, typer.Option("--seconds", help="Time for the measurements, after the model is loaded.", min=1)
    ] = 20.0,
) -> None:
    """Measure again how many copies, threads and records in a batch are best on this machine, and print the figures.

    The next start, restart or update uses them, where config.yaml does not set these keys.
    """
    config = logged_config(config_path)
    repository.refuse(config, "nothing is measured for a job that serves several")
    with Progress():
        tuned = _tuned(checked(config), seconds)
    log.info(tuned.text)
    console.print(report.tuned(tuned))


def _tuned(config: Config, seconds: float) -> Tuned:
    """Measure the layout of a job again; neither Redis nor Flink are needed for it, and the job may run."""
    if not target_of(config).is_here:
        raise LaunchError(
            f"a layout is measured where the job runs, and flink.target is {config.target}; set modelParallelism, "
            "threadPerModel and maxBatchSize in config.yaml"
        )
    if is_running(config):
        warn(f"job {config.job_name} runs during the measurement, which is right only while the job has no requests")
    secret = preflight.secret_of(config)
    say(f"Measuring the layouts, for about {seconds:.0f} s")
    try:
        return Decider(config, job_options(config, "tune"), secret).tune(seconds)
    except NotMeasured as error:
        raise LaunchError(f"nothing can be measured: {error}") from None


def _replace(file: Path, text: str) -> None:
    """Write a file whole or not at all: a full disk leaves the one of before."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        unfinished.write_text(text, "utf8")
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
