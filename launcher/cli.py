"""The commands `cluster-serving-*`."""

import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cluster_serving.launcher import (
    dead_commands,
    entry_points,
    examples,
    local_run,
    observing,
    origins,
    report,
    score,
    templates,
)
from cluster_serving.launcher.arguments import CONFIG_PATH, ConfigPath, JobName, config_of, named
from cluster_serving.launcher.command_log import keep_in, log, say, warn
from cluster_serving.launcher.config import embedding
from cluster_serving.launcher.config import file as config_file
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import job_status, lifecycle, model_files
from cluster_serving.launcher.jobs.shutdown import losses, shut_down
from cluster_serving.launcher.jobs.store import opened
from cluster_serving.launcher.rollout import change
from cluster_serving.launcher.rollout.change import Changed, NotBeside
from cluster_serving.launcher.services import controller, front_end, redis_server, state
from cluster_serving.launcher.services.controller import WatchedModels
from cluster_serving.launcher.shipping import bundle as shipping
from cluster_serving.launcher.terminal import Progress, confirm, console, printable, problems
from cluster_serving.protocol.errors import ServingError
from cluster_serving.settings.model import SettingsError

_IN_PLACE = "Stop the job first, for a machine without the memory for two generations."
_MOST_SLOTS = 4096

# Subcommands inherit it.
_HELP = {"help_option_names": ["-h", "--help"]}


def _share(of_what: str) -> str:
    return f"Keep both generations; the new one gets this percentage {of_what}."


def _init(
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
            help="Take over a model and its settings: a *.mar of TorchServe, or a folder of Triton, TensorFlow "
            "Serving, MLflow or Hugging Face.",
        ),
    ] = None,
) -> None:
    """Write a configuration file with every key explained, and make a folder for the model."""
    model = config_path.parent / "model"
    taken = origins.read(source) if source else None
    known = taken.keys if taken else embedding.settings(model)
    text = config_file.template(known)
    try:
        if config_path.exists() and not force and config_path.read_bytes() != text.encode():
            raise SettingsError(f"{config_path} exists already; edit it, or use --force to overwrite it")
        if taken:
            taken.write(model, force)
        model.mkdir(parents=True, exist_ok=True)
        config_path.write_text(text, "utf8")
        written = templates.write(model, force) if handler else []
    except OSError as error:
        raise LaunchError(f"cannot write {config_path}: {error.strerror}") from None
    for line in taken.report() if taken else ():
        console.print(printable(line))
    put = "Look through it" if taken else f"Put a model into {model}"
    console.print(f"Wrote {config_path}. {put}, then run cluster-serving-start.")
    if known and not taken:
        console.print(f"Set {', '.join(known)}, as the files of sentence-transformers in {model} say.")
    for path in written:
        console.print(f"Wrote {path}.")


def _quickstart(
    folder: Annotated[Path, typer.Argument(help="Where to write the model and config.yaml.")] = Path("quickstart"),
) -> None:
    """Serve a first model, which reads handwritten digits: make it, start all that it needs, and send it images."""
    # Imported when it is called: the other commands need no client.
    entry_points.load("launcher.quickstart.main", "main", "quickstart")(folder)


def _start(
    config_path: ConfigPath = CONFIG_PATH,
    http: Annotated[bool, typer.Option("--http", help="Start the HTTP front end too.")] = False,
    parallelism: Annotated[int | None, typer.Option("-p", "--parallelism", hidden=True, min=1)] = None,
    omp: Annotated[int | None, typer.Option("-o", "-t", "--omp", hidden=True, min=1)] = None,
) -> None:
    """Start a job, and Redis and Flink before it if needed; end when it answers requests."""
    # Options of the original's command.
    given = {"model_parallelism": parallelism, "thread_per_model": omp}
    config = _read(config_path).model_copy(update={key: value for key, value in given.items() if value})
    front_end.check(config, config_path, http)
    if http and lifecycle.is_running(config):
        console.print(f"Job {config.job_name} runs already.")
    else:
        _start_job(config, config_path)
    if http:
        _start_front_end(config, config_path)


def _stop(job: JobName = None, config_path: ConfigPath = CONFIG_PATH) -> None:
    """Stop a job; its queued requests stay in Redis."""
    config = _read(config_path) if config_path.exists() else config_of(config_path)
    name = named(job, config, config_path)
    with Progress():
        say(f"Stopping job {name}")
        # It could start the job again.
        if controller.stop(config.redis_address, name):
            say("Stopped its controller")
        ran = lifecycle.stop(config, name)
    if not ran:
        console.print(
            f"Job {name} did not run; it counts as stopped now. cluster-serving-cli forget {name} removes it."
        )
        return
    own_flink = config.target.endswith("-application")
    rest = "Redis goes on" if own_flink else "Redis and Flink go on"
    console.print(f"Stopped job {name}. Its queued requests stay in Redis; {rest}.")


def _forget(
    job: JobName = None,
    config_path: ConfigPath = CONFIG_PATH,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask before requests are lost.")] = False,
) -> None:
    """Remove a job that does not run, with its queued requests and dead letters, from its Redis and from this machine.

    Asks first if there are some.
    """
    config = config_of(config_path)
    name = named(job, config, config_path)
    redis_server.check(config)
    with opened(config, name) as store:
        lost = job_status.waiting(store)
    if lost and not yes:
        confirm(
            f"This would be lost: {lost}. Remove job {name}?",
            f"job {name} was not removed, because this would be lost: {lost}. Use --yes to remove it",
        )
    with Progress():
        if controller.stop(config.redis_address, name):
            say("Stopped its controller")
        lifecycle.forget(config, name)
    console.print(f"Removed job {name}.")


def _restart(
    config_path: ConfigPath = CONFIG_PATH,
    http: Annotated[bool, typer.Option("--http", help="Start the HTTP front end again, too.")] = False,
    in_place: Annotated[bool, typer.Option("--in-place", help=_IN_PLACE)] = False,
) -> None:
    """Let the job serve the model and the configuration as they are now, without a gap; start it if it does not run."""
    config = _read(config_path)
    front_end.check(config, config_path, http)
    if in_place or not lifecycle.is_running(config):
        _start_job(config, config_path, lifecycle.restart)
    else:
        try:
            _update_beside(config, config_path)
        except NotBeside as error:
            warn(f"{error}; the job is stopped in between")
            _start_job(config, config_path, lifecycle.restart)
    if http:
        _start_front_end(config, config_path, again=True)


def _update(
    job: JobName = None,
    config_path: ConfigPath = CONFIG_PATH,
    canary: Annotated[float | None, typer.Option(help=_share("of the requests"))] = None,
    shadow: Annotated[
        float | None, typer.Option(help=_share("of the requests, as copies whose answers are only compared"))
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help=_IN_PLACE)] = False,
) -> None:
    """Let a running job serve the model and the configuration as they are now, without a gap."""
    config = _read(config_path)
    front_end.check(config, config_path, False)
    if job not in (None, config.job_name):
        raise LaunchError(
            f"{config_path} is the configuration of job {config.job_name}, and not of {job}; name that of {job} with -c"
        )
    for name, share in (("canary", canary), ("shadow", shadow)):
        if share is not None and not 0 < share <= 100:
            raise SettingsError(f"--{name} is {share:g}; expected a percentage above 0 and up to 100")
    if canary and shadow:
        raise SettingsError("--canary and --shadow exclude each other: use one of them")
    if in_place and (canary or shadow):
        raise SettingsError("--in-place stops the old generation, which --canary and --shadow keep: use one of them")
    if in_place:
        _start_job(config, config_path, lifecycle.restart)
        return
    try:
        _update_beside(config, config_path, canary or 0.0, shadow or 0.0)
    except NotBeside as error:
        raise LaunchError(f"{error}; --in-place stops the job in between") from None


def _scale(
    words: Annotated[list[str], typer.Argument(metavar="[JOB] SLOTS", help="jobName, and the number of slots.")],
    config_path: ConfigPath = CONFIG_PATH,
) -> None:
    """Change the number of task slots of a running job, without a gap."""
    *names, number = words
    if len(names) > 1 or not number.isdecimal() or not 1 <= int(number) <= _MOST_SLOTS:
        raise SettingsError(
            f"{' '.join(words)!r} is not [JOB] SLOTS; expected a number from 1 to {_MOST_SLOTS}, such as 4, or a job "
            "and a number, such as digits 4"
        )
    _change(names[0] if names else None, config_path, change.scale, int(number))


def _promote(job: JobName = None, config_path: ConfigPath = CONFIG_PATH) -> None:
    """Let the canary, or the shadow, of a job serve all requests."""
    _change(job, config_path, change.promote)


def _rollback(job: JobName = None, config_path: ConfigPath = CONFIG_PATH) -> None:
    """End the canary or shadow of a job; without one, serve again what the job served before, without a gap."""
    _change(job, config_path, change.rollback)


def _update_beside(config: Config, config_path: Path, canary: float = 0.0, shadow: float = 0.0) -> None:
    with Progress(), _by_command(config, config_path):
        changed = change.update(config, canary, shadow)
    _show(changed, config_path)


def _change(job: str | None, config_path: Path, make: Callable[..., Changed | None], *given: object) -> None:
    config = config_of(config_path)
    name = named(job, config, config_path)
    with Progress():
        changed = make(config, name, *given)
    if changed is None:
        console.print("The canary or shadow has ended; the job serves as before.")
        return
    _show(changed, config_path)


def _show(changed: Changed, config_path: Path) -> None:
    shown = report.started(changed.started, config_path)
    log.info(shown.plain)
    console.print(shown)
    console.print(report.changed(changed))


def _shutdown(
    config_path: ConfigPath = CONFIG_PATH,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask before requests and results are lost.")] = False,
    keep_data: Annotated[bool, typer.Option("--keep-data", help="Keep the data of Redis for the next start.")] = False,
) -> None:
    """Stop all jobs, and the Redis and Flink that were started here; the data of that Redis is removed.

    Asks first if requests, results or dead letters would be lost. Logs stay. Without a configuration file, stop all
    that was started here.
    """
    config = None if config_path == CONFIG_PATH and not config_path.exists() else _read(config_path)
    if not (yes or keep_data) and (lost := losses(config)):
        confirm(
            f"This would be lost (--keep-data keeps it): {lost}. Stop all, and remove it?",
            f"nothing was stopped, because this would be lost: {lost}. Use --yes to remove it, or --keep-data to keep "
            "it for the next start",
        )
    with Progress():
        if not shut_down(config, keep_data):
            where = f"at {config.flink_address} and {config.redis_address}" if config else "that was started here"
            console.print(f"Nothing is running {where}.")


def _package(
    config_path: ConfigPath = CONFIG_PATH,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the archives.")] = Path(),
) -> None:
    """Write the archives that a job brings to a cluster: Python with its packages, and the model.

    For those who put them into an image or onto a shared file system themselves.
    """
    config = _read(config_path)
    with Progress():
        archives = shipping.write(config, output)
    for archive in archives:
        console.print(f"Wrote {archive}, {archive.stat().st_size / 1e6:.0f} MB")


def _tune(
    config_path: ConfigPath = CONFIG_PATH,
    seconds: Annotated[
        float, typer.Option("--seconds", help="Time for the measurements, after the model is loaded.", min=1)
    ] = 20.0,
) -> None:
    """Measure again how many copies, threads and records in a batch are best on this machine, and print the figures.

    The next start, restart or update uses them, where config.yaml does not set these keys.
    """
    config = _read(config_path)
    with Progress():
        tuned = lifecycle.tune(config, seconds)
    log.info(tuned.text)
    console.print(report.tuned(tuned))


def _start_job(config: Config, config_path: Path, start: Callable[..., lifecycle.Started] = lifecycle.start) -> None:
    with Progress(), _by_command(config, config_path):
        started = start(config)
    shown = report.started(started, config_path)
    log.info(shown.plain)
    console.print(shown)


@contextmanager
def _by_command(config: Config, path: Path) -> Iterator[None]:
    """Start the controller of a job again when a command has changed the job, as the configuration may ask for another.

    It does not load again what the command has loaded, or has left.
    """
    watched = WatchedModels(model_files.look(config)) if config.watch_model else None
    yield
    controller.ensure(config, path, watched)


def _start_front_end(config: Config, config_path: Path, again: bool = False) -> None:
    with Progress():
        url = front_end.ensure(config, config_path, again)
    console.print(f"    HTTP  {url}/predict")
    console.print(f"    page  {url}/ui")
    console.print(f"     API  {url}/docs")


def _read(path: Path) -> Config:
    """Return the file's configuration; what the command says is kept in the log beside the file."""
    if path.is_file():
        keep_in(path.absolute().parent)
        log.info(shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))
    return config_file.read(path, warn)


_COMMANDS: dict[str, Callable[..., None]] = {
    "quickstart": _quickstart,
    "init": _init,
    "start": _start,
    "stop": _stop,
    "forget": _forget,
    "restart": _restart,
    "update": _update,
    "scale": _scale,
    "promote": _promote,
    "rollback": _rollback,
    "shutdown": _shutdown,
    "package": _package,
    "list": observing.list_,
    "status": observing.status,
    "tune": _tune,
    "try": local_run.try_,
    "score": score.score,
    "metrics": observing.metrics,
    "events": observing.events,
    "logs": observing.logs,
    "doctor": observing.doctor_,
}


def _run(app: Callable[[], None]) -> None:
    log.addHandler(problems)
    # These signals end a command as Ctrl-C does, so that it undoes a start; unless they are ignored, as under nohup.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    try:
        app()
    except (LaunchError, SettingsError, ServingError, OSError) as error:
        log.error(str(error))
        sys.exit(error.exit_code if isinstance(error, SettingsError) else 1)
    except Exception as error:
        text = traceback.format_exc()
        try:
            trace = state.root() / "error.log"
            trace.parent.mkdir(parents=True, exist_ok=True)
            trace.write_text(text, "utf8")
            place = f"see {trace}"
        except (LaunchError, OSError) as unwritten:
            place = f"its stack trace cannot be written: {unwritten}"
        log.error(f"unexpected {type(error).__name__}: {error} ({place})")
        sys.exit(1)


def _end(number: int, _: object) -> None:
    # A terminal that closes sends two signals, systemd one of each: the second must not interrupt the undoing.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(128 + number)


def _program(name: str) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    epilog = examples.epilog(name, f"cluster-serving-{name}")
    app.command(epilog=epilog, context_settings=_HELP)(_COMMANDS[name])
    _run(app)


# Entry points of the commands cluster-serving-init, and so on.
init = partial(_program, "init")
start = partial(_program, "start")
stop = partial(_program, "stop")
restart = partial(_program, "restart")
shutdown = partial(_program, "shutdown")


def _http(context: typer.Context) -> None:
    """Serve jobs over HTTP; the options are those of cluster-serving-http."""
    # Imported here: the other commands need none of its packages.
    from cluster_serving.frontend.main import main

    main(context.args)


def _bench(context: typer.Context) -> None:
    """Measure a running job; the options are those of cluster-serving-bench."""
    entry_points.load("bench.load.main", "main", "bench")(context.args)


def _group(program: str, names: Iterable[str]) -> typer.Typer:
    app = typer.Typer(
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        epilog=examples.epilog(program, program),
        context_settings=_HELP,
    )
    for name in names:
        app.command(name, epilog=examples.epilog(name, f"{program} {name}"))(_COMMANDS[name])
    app.add_typer(dead_commands.commands(program), name="dead")
    return app


def umbrella() -> None:
    """Run `cluster-serving`, which has the other commands as subcommands."""
    app = _group("cluster-serving", _COMMANDS)
    app.callback()(_about)
    # All words after these commands are passed on, --help too.
    unread = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command("http", context_settings=unread)(_http)
    app.command("bench", context_settings=unread)(_bench)
    _run(app)


def _about() -> None:
    """Put a trained model in a folder; a PyFlink job serves it at scale through Redis Streams."""


def cli() -> None:
    """Run `cluster-serving-cli`."""
    jobs = ("list", "status", "stop", "forget", "update", "scale", "promote", "rollback", "tune", "try", "score")
    _run(_group("cluster-serving-cli", ("quickstart", *jobs, "metrics", "events", "logs", "doctor")))
