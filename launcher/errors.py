"""The error that a command reports in one line, without a traceback."""


class LaunchError(Exception):
    """A command cannot do what it was asked; the message says why, and how to help it."""
