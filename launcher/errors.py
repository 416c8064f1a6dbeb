"""What the commands report in one line, without a traceback."""

from __future__ import annotations

from typing import ClassVar


class LaunchError(Exception):
    """A command cannot do what it was asked; the message says why, and what to do about it.

    Attributes:
        exit_code: What the command exits with.
    """

    exit_code: ClassVar[int] = 1


class ConfigError(LaunchError):
    """The configuration file cannot be used; the message names file, line, key and what was expected."""

    exit_code = 2
