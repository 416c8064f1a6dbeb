"""Lifetimes of files, as OpenAI's API asks for them: an object with `anchor` and `seconds`."""

from collections.abc import Mapping
from typing import Any

from cluster_serving.protocol.errors import InvalidInput

KEPT = 7 * 24 * 3600
"""Seconds for which a file is kept unless a lifetime is asked for."""

_LEAST, _MOST = 3600, 30 * 24 * 3600
_FIELDS = {"anchor", "seconds"}


def seconds_of(name: str, asked: Mapping[str, Any] | None) -> int:
    """Return the seconds for which a file is kept; `asked` is the parameter `name`, or None.

    Raises:
        InvalidInput: If it has another form.
    """
    if asked is None:
        return KEPT
    seconds = asked.get("seconds") if isinstance(asked, Mapping) and asked.keys() == _FIELDS else None
    if type(seconds) is not int or not _LEAST <= seconds <= _MOST or asked["anchor"] != "created_at":
        raise InvalidInput(
            f"{name!r} is {str(asked)[:64]}; expected the anchor 'created_at' and from {_LEAST} to {_MOST} seconds"
        )
    return seconds


def of_form(fields: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the lifetime in the fields of a form, whose names are `expires_after[anchor]` and `[seconds]`."""
    found: dict[str, Any] = {
        name: fields[f"expires_after[{name}]"] for name in _FIELDS if f"expires_after[{name}]" in fields
    }
    if (text := str(found.get("seconds", ""))).isdecimal() and text.isascii():
        found["seconds"] = int(text[:12])
    return found or None
