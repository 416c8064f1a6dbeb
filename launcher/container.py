"""Entry point of the container images: a JobManager or a TaskManager in the foreground, or a health check."""

import os
import socket
import sys
from typing import Any

import yaml

from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.services import state
from cluster_serving.launcher.services.flink_home import FlinkHome
from cluster_serving.launcher.services.flink_rest import FlinkRest


def properties() -> dict[str, Any]:
    """Return the Flink options of the environment variable FLINK_PROPERTIES.

    It has one `key: value` a line; a key without a value unsets an option.
    """
    given = yaml.safe_load(os.environ.get("FLINK_PROPERTIES", "")) or {}
    if not isinstance(given, dict):
        raise LaunchError("FLINK_PROPERTIES must have one 'key: value' a line")
    return given


def run(role: str) -> None:
    """Replace this process with the JVM of a `jobmanager` or `taskmanager`, which gets the signals of the container."""
    home = _home()
    home.prepare(properties())
    (home.path / "role").write_text(role)
    os.chdir(home.work)
    script = str(home.path / "bin" / f"{role}.sh")
    os.execve(script, [script, "start-foreground"], home.environment())  # noqa: S606 - Flink's own script


def is_healthy() -> bool:
    """Return True if Flink's REST endpoint answers and, in the container of a TaskManager, lists that TaskManager.

    In the container of another role the result is True.
    """
    role = _home().path / "role"
    if not role.exists():
        return True
    given = properties()
    with FlinkRest(f"http://{given.get('rest.address', 'localhost')}:{given.get('rest.port', 8081)}") as rest:
        if role.read_text() == "taskmanager":
            return socket.gethostbyname(socket.gethostname()) in rest.taskmanagers()
        return rest.overview() is not None


def main() -> None:
    """Run the role, or the health check, that the command line names."""
    role = sys.argv[1] if len(sys.argv) == 2 else ""
    try:
        if role == "health":
            sys.exit(not is_healthy())
        if role not in ("jobmanager", "taskmanager"):
            raise LaunchError("expected one argument: jobmanager, taskmanager or health")
        run(role)
    except LaunchError as error:
        sys.exit(f"error: {error}")


def _home() -> FlinkHome:
    return FlinkHome(state.root() / "flink")


if __name__ == "__main__":
    main()
