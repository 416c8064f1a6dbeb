"""The HTTP front end that is started here, beside a job."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import state
from cluster_serving.launcher.services.process import Process, locked, spawn, wait_until
from cluster_serving.launcher.services.redis_server import is_listening
from cluster_serving.settings.addresses import Address

SERVICE = "http"
"""Name of the service in the state folder."""

_RECORD = "process.json"
_LOG = "http.log"
_REDIS = "redis"
_SHUTDOWN_TIMEOUT = "CLUSTER_SERVING_HTTP_SHUTDOWN_TIMEOUT"


def ensure(config: Config, config_path: Path, say: Callable[[str], None] = lambda _: None, again: bool = False) -> str:
    """Start the front end of a configuration, unless it runs already; it serves all jobs of its Redis.

    Args:
        config: The job's configuration.
        config_path: Its file, whose section `http` has the front end's options.
        say: Told what happens.
        again: If it runs already, end it first, once it has answered what it has accepted.

    Returns:
        Its address.

    Raises:
        SettingsError: If its options cannot be used.
        LaunchError: It cannot be started, or one that serves another Redis has its port.
    """
    # Only here: the other commands do without its packages.
    from cluster_serving.frontend import main

    options = main.read_options(["-c", str(config_path)])
    scheme, port = ("http", options.port) if options.plain_http_enabled else ("https", options.secure_port)
    url = f"{scheme}://{options.interface}:{port}"
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
        command = [sys.executable, "-P", "-m", "cluster_serving.frontend.main", "-c", str(config_path.absolute())]
        # It has to be done before its keeper loses patience.
        environment = {_SHUTDOWN_TIMEOUT: "6"} | os.environ
        process = spawn(command, home / _RECORD, home / _LOG, config_path.absolute().parent, environment)
        if (
            not wait_until(lambda: is_listening(listening) or not process.is_alive, config.start_timeout)
            or not process.is_alive
        ):
            process.stop()
            lines = (home / _LOG).read_text("utf8", "replace").strip().splitlines()
            raise LaunchError(
                f"the front end did not start: {lines[-1] if lines else 'no output'} (log: {home / _LOG})"
            )
    return url


def stop(address: Address, redis: Address | None = None) -> bool:
    """Stop the front end that was started here; it answers first what it has accepted.

    Args:
        address: Where it listens.
        redis: Only if it serves the jobs of this Redis; None for any.

    Returns:
        Whether there was one.
    """
    home = state.folder(SERVICE, address)
    with locked(home):
        process = Process.read(home / _RECORD)
        if process and redis is not None and not _serves(home, redis):
            return False
        if process:
            process.stop()
        shutil.rmtree(home, ignore_errors=True)
    return process is not None


def _serves(home: Path, redis: Address) -> bool:
    return _redis_of(home) in map(str, redis.spellings)


def _redis_of(home: Path) -> str:
    return (home / _REDIS).read_text("utf8")
