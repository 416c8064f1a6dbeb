"""The commands `cluster-serving-cli dead ...`."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from cluster_serving.launcher import examples
from cluster_serving.launcher.commands import DEAD
from cluster_serving.launcher.commands.arguments import CONFIG_PATH, AsJson, ConfigPath, config_of, default_job
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs.dead_letters import DeadLetters, details, summary
from cluster_serving.launcher.services import redis_server
from cluster_serving.launcher.terminal import confirm, console, printable
from cluster_serving.settings.errors import SettingsError

ListedJob = Annotated[str | None, typer.Argument(help="jobName; default: that of the configuration file.")]
JobName = Annotated[str | None, typer.Option("-j", "--job", help="jobName; default: that of the configuration file.")]
Id = Annotated[str, typer.Argument(help="Id of a dead letter, as dead list shows it.")]
Ids = Annotated[list[str] | None, typer.Argument(help="Ids of dead letters, as dead list shows them.")]
All = Annotated[bool, typer.Option("--all", help="All dead letters of the job.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]


def commands(program: str) -> typer.Typer:
    """Make the group of commands of a program."""
    app = typer.Typer(
        help=DEAD.about,
        add_completion=False,
        epilog=examples.epilog("dead", f"{program} dead"),
    )
    functions: dict[str, Callable[..., None]] = {"list": list_, "show": show, "requeue": requeue, "purge": purge}
    for name, function in functions.items():
        app.command(name, epilog=examples.epilog(f"dead {name}", f"{program} dead {name}"))(function)
    return app


@contextmanager
def _opened(path: Path, job: str | None) -> Iterator[DeadLetters]:
    config = config_of(path)
    redis_server.check(config)
    name = job or default_job(config, path)
    with redis_server.connect(config, decode=False, job=name) as client:
        yield DeadLetters(client, name)


def list_(job: ListedJob = None, as_json: AsJson = False, config_path: ConfigPath = CONFIG_PATH) -> None:
    """List the requests that were given up, the oldest first."""
    with _opened(config_path, job) as letters:
        rows = [summary(letter_id, letter) for letter_id, letter in letters.all().items()]
        of_models = letters.of_models()
    if as_json and (rows or letters.is_of_known_job()):
        print(json.dumps(rows, indent=2))
    elif rows:
        table = Table(*rows[0], box=None, header_style="bold")
        for row in rows:
            table.add_row(*(printable(str(value)) for value in row.values()))
        console.print(table)
    elif letters.is_of_known_job():
        console.print(f"Job {letters.job} has no dead letters.")
    else:
        raise LaunchError(f"Redis knows no job {letters.job}; cluster-serving-cli list shows the jobs")
    if of_models and not as_json:
        console.print(f"Its models have dead letters of their own: {', '.join(of_models)}. Name one of them.")


def show(letter_id: Id, job: JobName = None, as_json: AsJson = False, config_path: ConfigPath = CONFIG_PATH) -> None:
    """Show a dead letter: error, traceback, and the inputs of its payload."""
    with _opened(config_path, job) as letters:
        shown = details(letter_id, letters.get(letter_id))
    if as_json:
        print(json.dumps(shown, indent=2))
        return
    inputs = shown.pop("inputs") or ()
    for key, value in shown.items():
        first, *others = map(printable, str(value).splitlines() or [""])
        console.print("\n".join([f"{key:>9}  {first}", *(f"{'':>9}  {line}" for line in others)]))
    for text in [inputs] if isinstance(inputs, str) else map(_line, inputs):
        console.print(f"{'input':>9}  {printable(text)}")


def requeue(
    letter_ids: Ids = None, everything: All = False, job: JobName = None, config_path: ConfigPath = CONFIG_PATH
) -> None:
    """Queue requests again under their uri; remove their letters and the errors that answered them."""
    refused = []
    with _opened(config_path, job) as letters:
        chosen = _chosen(letters, letter_ids, everything)
        for letter_id in chosen:
            try:
                console.print(f"Queued {letter_id} again as {letters.requeue(letter_id)}.")
            except LaunchError as error:
                refused.append(str(error))
        console.print(f"Queued {len(chosen) - len(refused)} of {len(chosen)} requests of job {letters.job} again.")
    if refused:
        raise LaunchError("\n".join(refused))


def purge(
    letter_ids: Ids = None,
    everything: All = False,
    yes: Yes = False,
    job: JobName = None,
    config_path: ConfigPath = CONFIG_PATH,
) -> None:
    """Remove dead letters for good."""
    with _opened(config_path, job) as letters:
        chosen = _chosen(letters, letter_ids, everything)
        if chosen and not yes:
            what = f"{_counted(len(chosen))} of job {letters.job}"
            confirm(f"Remove {what} for good?", f"{what} not removed. Use --yes to remove them for good")
        console.print(f"Removed {_counted(letters.purge(chosen))} of job {letters.job}.")


def _chosen(letters: DeadLetters, letter_ids: list[str] | None, everything: bool) -> list[str]:
    if letter_ids and everything:
        raise SettingsError("ids of dead letters and --all exclude each other: use either ids or --all")
    if not letter_ids and not everything:
        raise SettingsError("the command names no dead letters; add their ids, which dead list shows, or --all")
    return list(letters.all()) if everything else letter_ids or []


def _counted(letters: int) -> str:
    return f"{letters} dead letter{'' if letters == 1 else 's'}"


def _line(described: dict[str, Any]) -> str:
    name, *others = map(str, described.values())
    return f"{name}: {' '.join(others)}"
