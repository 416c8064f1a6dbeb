"""Types of the values of settings that YAML itself does not have; those of a job are in `launcher.config.values`."""

from typing import Annotated, Any

from pydantic import BeforeValidator


def to_tuple(value: Any) -> Any:
    """Return a list, and the lists in it, as tuples: a strict model takes no list where its type is a tuple."""
    return tuple(to_tuple(item) for item in value) if isinstance(value, list) else value


def _names(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return to_tuple(value)


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
"""Names, written as a list or separated by commas."""
