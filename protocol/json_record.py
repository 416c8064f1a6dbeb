"""Dataclasses that Redis and files keep as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T", bound="JsonRecord")


@dataclass(frozen=True)
class JsonRecord:
    """Base of a dataclass that is kept as JSON."""

    def to_json(self) -> str:
        """Return the record as JSON text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls: type[T], text: str | bytes) -> T:
        """Read a record from the text that `to_json` returned, also that of a newer version with more fields."""
        raw: dict[str, Any] = json.loads(text)
        return cls(**{field.name: raw[field.name] for field in fields(cls) if field.name in raw})
