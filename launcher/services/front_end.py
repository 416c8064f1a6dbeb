"""The HTTP front end that is started on this machine, beside a job."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_serving.launcher.command_log import say
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import state
from cluster_serving.launcher.services.process import (
    Process,
    is_listening,
    locked,
    remove_files,
    start,
    stop_recorded,
    wait_until,
)
from cluster_serving.launcher.services.supervisor import python_command
from cluster_serving.settings import yaml_file
from cluster_serving.settings.addresses import Address

if TYPE_CHECKING:
    from cluster_serving.frontend.main import HttpOptions

SERVICE = "http"
"""Name of the service in the state folder."""

_RECORD = "process.json"
_NEXT = "next"
_RETIRED = "retired"
"""Records of the front end that serves, of one that is being started beside it, and of the one before it, which answers
its last requests. Nothing would start the latter two again, so their names are not those of a record."""

_CLOSING = 10.0
"""Most seconds that a front end takes to close its connections."""

_LOG = "http.log"
_REDIS = "redis"
_STARTED = "started"
"""A hash of the options that a front end was started with, and the file of its configuration."""

_STOPPING = {"CLUSTER_SERVING_HTTP_DRAIN_SECONDS": "1", "CLUSTER_SERVING_HTTP_SHUTDOWN_TIMEOUT": "5"}


def check(config: Config, config_path: Path, starts: bool) -> None:
    """Check the options of the front end if the file has some; if it is to start, check also that its ports are free.

    Raises:
        SettingsError: If they cannot be used.
        LaunchError: If a port is taken.
    """
    sections = {name.partition(".")[0].lower() for name, _ in yaml_file.read(config_path)}
    if starts or yaml_file.FRONT_END in sections:
        # As below.
        from cluster_serving.frontend import main

        options = main.read_options(["-c", str(config_path)])
        if starts:
            _check_ports(options, config, config_path)


def ensure(config: Config, config_path: Path, again: bool = False) -> str:
    """Start the front end of a configuration, unless it runs already, and return its URL.

    The front end serves all jobs of its Redis. The section `http` of the file has its options. With `again`, a new one
    takes over from one that runs already: it listens on the same ports before the earlier one stops to, and no
    connection is lost. The earlier one answers its requests and ends, also after this function has returned.

    Raises:
        SettingsError: If its options cannot be used.
        LaunchError: If it cannot be started, or its port belongs to a front end of another Redis. One that runs goes
            on then.
    """
    # Imported here: the other commands need none of its packages.
    from cluster_serving.frontend import main

    options = main.read_options(["-c", str(config_path)])
    scheme, port = _first_port(options)
    url = f"{scheme}://{Address(options.own_host, port)}"
    home = state.folder(SERVICE, Address("localhost", port))
    with locked(home):
        _complete(home, main.hot_restart.is_serving)
        earlier = Process.read(home / _RECORD)
        if earlier and again and not main.hot_restart.is_serving(home, earlier.pid):
            # It hangs, or its version knows no hot restart.
            earlier.stop()
        _check_ports(options, config, config_path)
        earlier = Process.read(home / _RECORD)
        digest = sha256(options.to_json().encode()).hexdigest()
        if earlier and not again:
            say(f"Using the HTTP front end on port {port}{_differs(home, digest, config_path)}")
            return url
        _await_retired(home, options.handover_timeout + options.longest_answer + _CLOSING)
        home.mkdir(mode=0o700, exist_ok=True)
        (home / _REDIS).write_text(str(config.redis_address), "utf8")
        say(f"Starting the HTTP front end on port {port}{', beside the one that runs' if earlier else ''}")
        start(
            "the new front end, beside which the earlier one goes on," if earlier else "the front end",
            python_command("cluster_serving.frontend.main", "-c", str(config_path.absolute())),
            home / (_NEXT if earlier else _RECORD),
            home / _LOG,
            config_path.absolute().parent,
            # Less than its supervisor waits before it kills the front end.
            _STOPPING | os.environ | main.hot_restart.environment(home, earlier.pid if earlier else None),
            lambda process: main.hot_restart.is_serving(home, process.pid),
            config.start_timeout,
        )
        if earlier:
            _switch(home)
            # From now on, all requests meet the present options.
            wait_until(lambda: not main.hot_restart.is_serving(home, earlier.pid), _CLOSING)
        (home / _STARTED).write_text(f"{digest} {config_path.absolute()}", "utf8")
    return url


def _differs(home: Path, digest: str, config_path: Path) -> str:
    """Return what to say of a front end with other options than a configuration has; the name of a job is one."""
    with suppress(FileNotFoundError):
        earlier, _, file = (home / _STARTED).read_text("utf8").partition(" ")
        if earlier != digest:
            return (
                f", whose options are those that {file} had at its start; for those of {config_path}, run "
                f"cluster-serving-restart --http -c {config_path}"
            )
    return ""


def _first_port(options: HttpOptions) -> tuple[str, int]:
    """Return scheme and number of the port by which the front end is known."""
    return ("http", options.port) if options.plain_http_enabled else ("https", options.secure_port)


def _check_ports(options: HttpOptions, config: Config, config_path: Path) -> None:
    """Check that the ports of a front end are free, or have one of the same Redis.

    Raises:
        LaunchError: If they are not.
    """
    _, first = _first_port(options)
    home = state.folder(SERVICE, Address("localhost", first))
    if first and Process.read(home / _RECORD):
        if not _serves(home, config.redis_address):
            raise LaunchError(
                f"the front end on port {first} serves the jobs of Redis at {_redis_of(home)}, and not of "
                f"{config.redis_address}; set http.port in {config_path} to another port"
            )
        return
    for key, port in options.wanted_ports.items():
        if port == 0 or is_listening(Address(options.own_host, port)):
            why = "is taken" if port else "cannot be found again"
            raise LaunchError(
                f"port {port} {why}, so the front end cannot use it; set http.{key} in {config_path} to a free one"
            )


def stop(address: Address, redis: Address | None = None) -> bool:
    """Stop the front end that was started here; it answers first the requests that it has accepted.

    With an address of Redis, a front end of another Redis goes on. Return True if there was one to stop.
    """
    home = state.folder(SERVICE, address)
    with locked(home):
        if redis is not None and Process.read(home / _RECORD) and not _serves(home, redis):
            return False
        for record in (_NEXT, _RETIRED):
            stop_recorded(home / record)
        stopped = stop_recorded(home / _RECORD)
        remove_files(home, keep={f"{_LOG}*"})
        return stopped


def folders(redis: Address) -> list[Path]:
    """Return the folders of the front ends of a Redis that were started here."""
    homes = [state.folder(SERVICE, address) for address in state.addresses(SERVICE)]
    return [home for home in homes if (home / _REDIS).exists() and _serves(home, redis)]


def redis_of(address: Address) -> str:
    """Return the address of the Redis of a front end that was started here; empty if there is none."""
    try:
        return _redis_of(state.folder(SERVICE, address))
    except FileNotFoundError:
        return ""


def _complete(home: Path, is_serving: Callable[[Path, int], bool]) -> None:
    """Complete the change of a command that has died in the middle, or take it back."""
    process = Process.read(home / _NEXT)
    if process and is_serving(home, process.pid):
        _switch(home)
    else:
        stop_recorded(home / _NEXT)


def _switch(home: Path) -> None:
    """Let the records say that the next front end serves, and the earlier one answer its last requests."""
    # A command that dies in between has its work completed by the next one.
    with suppress(FileNotFoundError):
        os.replace(home / _RECORD, home / _RETIRED)
    os.replace(home / _NEXT, home / _RECORD)
    if earlier := Process.read(home / _RETIRED):
        earlier.retire()


def _await_retired(home: Path, timeout: float) -> None:
    """Wait for the end of a front end that answers its last requests, so that there are at most two at a time."""
    if process := Process.read(home / _RETIRED):
        process.retire()
        if process.is_alive:
            say("Waiting for the front end before the one that runs, which answers its last requests")
        wait_until(lambda: not process.is_alive, timeout)
    stop_recorded(home / _RETIRED)


def _serves(home: Path, redis: Address) -> bool:
    return _redis_of(home) in map(str, redis.spellings)


def _redis_of(home: Path) -> str:
    return (home / _REDIS).read_text("utf8")
