"""Version of a Redis or Valkey, and whether it has known holes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# First release of each branch without known holes, as of the releases of July 2026 (CVE-2025-49844 and later ones).
# A branch that is missing here and older than the last one gets no fixes.
_FIXED = {
    "Redis": ("6.2.23", "7.2.15", "7.4.10", "8.2.8", "8.4.5", "8.6.5", "8.8.1"),
    "Valkey": ("7.2.14", "8.0.10", "8.1.9", "9.0.5", "9.1.1"),
}

# Servers that report a version of Redis for compatibility, and their own in a field of this name.
_OTHERS = {"valkey_version": "Valkey", "dragonfly_version": "Dragonfly", "garnet_version": "Garnet"}


@dataclass(frozen=True, slots=True)
class RedisVersion:
    """Version of a server.

    Attributes:
        product: Such as `Redis` or `Valkey`.
        number: Such as `7.2.14`.
    """

    product: str
    number: str

    @classmethod
    def read(cls, info: Mapping[str, object]) -> RedisVersion:
        """Return the version that the section `server` of INFO has."""
        field = next((field for field in _OTHERS if field in info), "redis_version")
        return cls(_OTHERS.get(field, "Redis"), str(info[field]))

    def __str__(self) -> str:
        return f"{self.product} {self.number}"

    @property
    def fixed(self) -> str:
        """The release of this branch, or else of the next one, that closes known holes; empty without known holes."""
        later = [release for release in _FIXED.get(self.product, ()) if _parts(release)[:2] >= _parts(self.number)[:2]]
        return later[0] if later and _parts(self.number) < _parts(later[0]) else ""


def _parts(number: str) -> tuple[int, ...]:
    # Some have more, as in 8.0.0-rc1.
    return tuple(map(int, re.findall(r"\d+", number)[:3]))
