"""The commands `cluster-serving-*`."""

import errno
import gc
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

import typer
from typer.core import TyperCommand

from cluster_serving.launcher import entry_points, examples
from cluster_serving.launcher.command_log import log
from cluster_serving.launcher.commands import COMMANDS, DEAD
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.terminal import problems
from cluster_serving.protocol.errors import ServingError
from cluster_serving.settings.errors import SettingsError

# What a command imports are many objects and no garbage, for which Python would look some hundred times.
gc.set_threshold(100_000)

# Subcommands inherit it.
_HELP = {"help_option_names": ["-h", "--help"]}
# All words after these commands are passed on, --help too.
_UNREAD = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


class _Later(TyperCommand):
    """A command in a group, as in click's LazyGroup: help lists the command without importing it.

    The callback returns the program of the command, which parses the arguments.
    """

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Return the context of the program."""
        return self.loaded().make_context(*arguments, **options)

    def loaded(self) -> Any:
        """Return the program as click has it."""
        load = cast("Callable[[], typer.Typer]", self.callback)
        return typer.main.get_command(load())


def _run(app: Callable[[], None]) -> None:
    log.addHandler(problems)
    # These signals end a command as Ctrl-C does, so that it undoes a start; unless they are ignored, as under nohup.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    try:
        app()
    except (LaunchError, SettingsError, ServingError, OSError) as error:
        log.error(_text(error))
        sys.exit(error.exit_code if isinstance(error, SettingsError) else 1)
    except Exception as error:
        # Imported here: no other error needs them, and help needs neither Redis nor pydantic.
        from redis.exceptions import RedisError

        from cluster_serving.launcher.services import state

        if isinstance(error, RedisError):
            # It died, began to load its data, or became a replica while the command ran.
            log.error(f"Redis failed while the command ran: {error}; run it again, or see cluster-serving-cli doctor")
            sys.exit(1)
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


def _text(error: Exception) -> str:
    """Return the message of an error; those of a full disk and of missing rights name no remedy by themselves."""
    if isinstance(error, PermissionError) and error.filename:
        rights = "give this user the right to it, or run the command as its owner (ls -ld names owner and rights)"
        return f"{error.strerror}: {error.filename}; {rights}"
    if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return str(error)
    place = f" ({error.filename})" if error.filename else ""
    return (
        f"{error.strerror}{place}: make room, or name another folder, such as that of CLUSTER_SERVING_HOME "
        "(~/.cluster-serving)"
    )


def _end(number: int, _: object) -> None:
    # A terminal that closes sends two signals, systemd one of each: the second must not interrupt the undoing.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(128 + number)


def _single(name: str, typed: str, completion: bool = False) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=completion)
    app.command(name, epilog=examples.epilog(name, typed), context_settings=_HELP)(COMMANDS[name].load())
    return app


def _program(name: str) -> None:
    _run(_single(name, f"cluster-serving-{name}", completion=True))


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


def _group(program: str, names: Iterable[str], passing_on: Iterable[Callable[..., None]] = ()) -> typer.Typer:
    app = typer.Typer(
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        epilog=examples.epilog(program, program),
        context_settings=_HELP,
    )
    for name in names:
        app.command(name, cls=_Later, help=COMMANDS[name].about)(_loader(name, program))
    for function in passing_on:
        app.command(function.__name__.strip("_"), context_settings=_UNREAD)(function)
    app.command("dead", cls=_Later, help=DEAD.about)(lambda: DEAD.load()(program))
    return app


def _loader(name: str, program: str) -> Callable[[], typer.Typer]:
    return lambda: _single(name, f"{program} {name}")


def umbrella() -> None:
    """Run `cluster-serving`, which has the other commands as subcommands."""
    app = _group("cluster-serving", COMMANDS, (_http, _bench))
    app.callback()(_about)
    _run(app)


def _about() -> None:
    """Put a trained model in a folder; a PyFlink job serves it at scale through Redis Streams."""


def cli() -> None:
    """Run `cluster-serving-cli`."""
    jobs = ("list", "status", "stop", "forget", "update", "scale", "promote", "rollback", "tune", "try", "score")
    app = _group("cluster-serving-cli", ("quickstart", *jobs, "metrics", "events", "logs", "doctor"))
    # They have programs of their own, and are often typed here.
    for name in ("init", "start", "restart", "shutdown"):
        app.command(name, cls=_Later, hidden=True)(_loader(name, "cluster-serving-cli"))
    _run(app)
