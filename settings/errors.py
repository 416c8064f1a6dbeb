"""The error of a setting, apart from pydantic: the commands handle the error, also where they read no settings."""

from typing import ClassVar


class SettingsError(Exception):
    """A setting cannot be used; the message names file and line, key, and what is expected.

    Attributes:
        exit_code: Exit code of a command that ends with this error.
    """

    exit_code: ClassVar[int] = 2
