"""The commands of a program as click has them."""

from typing import Any

import typer


def loaded(app: typer.Typer) -> Any:
    """Return the command of a program, and in it all commands that would be imported when they run."""
    command: Any = typer.main.get_command(app)
    for name, inner in getattr(command, "commands", {}).items():
        command.commands[name] = inner.loaded() if hasattr(inner, "loaded") else inner
    return command
