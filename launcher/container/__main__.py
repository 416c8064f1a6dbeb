"""Entry point of the container images: `python -m cluster_serving.launcher.container ROLE`."""

import sys

from cluster_serving.launcher.container import checks
from cluster_serving.launcher.errors import LaunchError

ROLES = ("jobmanager", "taskmanager", "application", "options", "install")


def main() -> None:
    """Run the role, or the health check, that the command line names."""
    role = sys.argv[1] if len(sys.argv) == 2 else ""
    try:
        if role not in (*ROLES, "health"):
            raise LaunchError(f"expected one argument: {', '.join(ROLES)} or health")
        checks.can_import_redis()
        _run(role)
    except LaunchError as error:
        sys.exit(f"error: {error}")


def _run(role: str) -> None:
    # Imported here: these import redis-py.
    from cluster_serving.launcher.container import health, roles
    from cluster_serving.protocol.errors import ServingError
    from cluster_serving.settings.errors import SettingsError

    try:
        if role == "health":
            sys.exit(health.problem())
        getattr(roles, role)()
    except (ServingError, SettingsError) as error:
        raise LaunchError(str(error)) from None


if __name__ == "__main__":
    main()
