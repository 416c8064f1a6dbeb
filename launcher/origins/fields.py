"""Fields of a file of another server, which know whether they were read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

NO_KEY = "no key of config.yaml means this"
"""What is said of a field by default."""

IN_MODEL = "the model file holds what this describes"
"""What is said of a field that was needed to make the model file."""

FACT = "for people; nothing is to be set"
"""What is said of a version, a date or an id."""


class Fields:
    """Names with values, as JSON, YAML or a protobuf message has them.

    A part, a value with fields of its own, counts what was read by itself. Fields that were not read are in `unread`,
    so that no field is dropped in silence.

    Args:
        content: The values by name; null is as good as no field.
        repeated: Each value is a list, whose last one counts, as `text_proto.parse` returns them.
    """

    def __init__(self, content: Mapping[str, Any], repeated: bool = False) -> None:
        self._content = {str(name): value for name, value in content.items() if value is not None}
        self._repeated = repeated
        self._read = set[str]()
        self._parts = dict[str, list[Fields]]()

    def __contains__(self, name: str) -> bool:
        return name in self._content

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def take(self, name: str, default: Any = None) -> Any:
        """Return a value as it is; the field counts as read."""
        self._read.add(name)
        value = self._content.get(name, default)
        return (value[-1] if value else default) if self._repeated and name in self._content else value

    def every(self, name: str) -> list[Any]:
        """Return all values of a field that may have several; it counts as read."""
        self._read.add(name)
        value = self._content.get(name, [])
        return list(value) if isinstance(value, list) else [value]

    def parts(self, name: str) -> list[Fields]:
        """Return the parts of a field, which is a list; each part keeps note of what was read of it."""
        if name not in self._parts:
            values = self.every(name)
            self._parts[name] = [Fields(value, self._repeated) for value in values if isinstance(value, Mapping)]
            if any(not isinstance(value, Mapping) for value in values):
                self._read.discard(name)
        return self._parts[name]

    def part(self, name: str) -> Fields:
        """Return the part of a field, the last of several; an empty one without it."""
        parts = self.parts(name)
        return parts[-1] if parts else Fields({})

    def unread(self, above: str = "") -> list[str]:
        """Return the names of the fields that were not read, those of parts behind a dot."""
        found = dict.fromkeys(f"{above}{name}" for name in self._content if name not in self._read)
        for name, parts in self._parts.items():
            found |= dict.fromkeys(unread for part in parts for unread in part.unread(f"{above}{name}."))
        return sorted(found)

    def left(self, file: PurePath | str, why: str = NO_KEY, ways: Mapping[str, str] | None = None) -> list[str]:
        """Return lines with the fields that were not read, and why; they count as read then. No fields, no line.

        Args:
            file: What has the fields, for the lines.
            why: What is said of fields without a way of their own.
            ways: Name of a field, or of one around it → what is said of it instead.
        """
        grouped: dict[str, list[str]] = {}
        for name in self.unread():
            grouped.setdefault(_way(name, ways or {}) or why, []).append(name)
        self._read.update(self._content)
        self._parts.clear()
        return [f"{', '.join(names)} of {file}: {reason}" for reason, names in grouped.items()]

    def leave(self, file: PurePath | str, why: str, *names: str) -> list[str]:
        """Return a line with those of some fields that the file has, which count as read; no line without them."""
        found = [name for name in names if name in self._content]
        self._read.update(found)
        return [f"{', '.join(found)} of {file}: {why}"] if found else []


def _way(name: str, ways: Mapping[str, str]) -> str:
    """Return what is said of a field, or of the nearest field around it; empty if nothing is."""
    while name and name not in ways:
        name = name.rpartition(".")[0]
    return ways.get(name, "")


def read_fields(path: Path) -> Fields | None:
    """Return the fields of a JSON file beside a model; None if it is missing, or holds something else."""
    content = read_json(path)
    return Fields(content) if isinstance(content, dict) else None


def read_json(path: Path) -> Any:
    """Return what a file beside a model holds; None if it is missing, or no JSON."""
    try:
        return json.loads(path.read_text("utf8"))
    except (OSError, ValueError):
        # The files are a help, no part of the model.
        return None
