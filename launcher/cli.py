"""The commands `cluster-serving-*`."""

import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import partial

import typer

from cluster_serving.launcher import (
    changing,
    dead_commands,
    entry_points,
    examples,
    local_run,
    observing,
    preparing,
    removing,
    running,
    score,
)
from cluster_serving.launcher.command_log import log
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import state
from cluster_serving.launcher.terminal import problems
from cluster_serving.protocol.errors import ServingError
from cluster_serving.settings.model import SettingsError

# Subcommands inherit it.
_HELP = {"help_option_names": ["-h", "--help"]}


_COMMANDS: dict[str, Callable[..., None]] = {
    "quickstart": preparing.quickstart,
    "init": preparing.init,
    "start": running.start,
    "stop": running.stop,
    "forget": removing.forget,
    "restart": changing.restart,
    "update": changing.update,
    "scale": changing.scale,
    "promote": changing.promote,
    "rollback": changing.rollback,
    "shutdown": removing.shutdown,
    "package": preparing.package,
    "list": observing.list_,
    "status": observing.status,
    "tune": preparing.tune,
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
