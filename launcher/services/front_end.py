"""The HTTP front end that is started on this machine, beside a job."""

import os
from collections.abc import Callable
from pathlib import Path

from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import state
from cluster_serving.launcher.services.process import (
    Process,
    is_listening,
    locked,
    spawn,
    stop_recorded,
    wait_until_listening,
)
from cluster_serving.launcher.services.supervisor import python_command
from cluster_serving.settings.addresses import Address

SERVICE = "http"
"""Name of the service in the state folder."""

_RECORD = "process.json"
_LOG = "http.log"
_REDIS = "redis"
_STOPPING = {"CLUSTER_SERVING_HTTP_DRAIN_SECONDS": "1", "CLUSTER_SERVING_HTTP_SHUTDOWN_TIMEOUT": "5"}


def ensure(config: Config, config_path: Path, say: Callable[[str], None] = lambda _: None, again: bool = False) -> str:
    """Start the front end of a configuration, unless it runs already, and return its URL.

    The front end serves all jobs of its Redis. The section `http` of the file has its options. With `again`, one that
    runs already is ended first; it answers the requests that it has accepted.

    Raises:
        SettingsError: If its options cannot be used.
        LaunchError: If it cannot be started, or its port belongs to a front end of another Redis.
    """
    # Imported here: the other commands need none of its packages.
    from cluster_serving.frontend import main

    options = main.read_options(["-c", str(config_path)])
    scheme, port = ("http", options.port) if options.plain_http_enabled else ("https", options.secure_port)
    url = f"{scheme}://{Address(options.interface, port)}"
    home = state.folder(SERVICE, Address("localhost", port))
    with locked(home):
        if process := Process.read(home / _RECORD):
            if not _serves(home, config.redis_address):
                raise LaunchError(
                    f"the front end on port {port} serves the jobs of Redis at {_redis_of(home)}, and not of "
                    f"{config.redis_address}; set http.port in {config_path} to another port"
                )
            if not again:
                return url
            process.stop()
        listening = Address("localhost" if options.interface == "0.0.0.0" else options.interface, port)  # noqa: S104
        if port == 0 or is_listening(listening):
            raise LaunchError(
                f"port {port} cannot be used for the front end; set http.port in {config_path} to a free one"
            )
        home.mkdir(mode=0o700, exist_ok=True)
        (home / _REDIS).write_text(str(config.redis_address), "utf8")
        say(f"Starting the HTTP front end on port {port}")
        command = python_command("cluster_serving.frontend.main", "-c", str(config_path.absolute()))
        # Less than its supervisor waits before it kills the front end.
        environment = _STOPPING | os.environ
        process = spawn(command, home / _RECORD, home / _LOG, config_path.absolute().parent, environment)
        wait_until_listening(process, listening, config.start_timeout, "the front end", home / _LOG)
    return url


def stop(address: Address, redis: Address | None = None) -> bool:
    """Stop the front end that was started here; it answers first the requests that it has accepted.

    With an address of Redis, a front end of another Redis goes on. Return True if there was one to stop.
    """
    home = state.folder(SERVICE, address)
    with locked(home):
        if redis is not None and Process.read(home / _RECORD) and not _serves(home, redis):
            return False
        return stop_recorded(home, _RECORD, keep={f"{_LOG}*"})


def _serves(home: Path, redis: Address) -> bool:
    return _redis_of(home) in map(str, redis.spellings)


def _redis_of(home: Path) -> str:
    return (home / _REDIS).read_text("utf8")
