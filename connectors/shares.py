"""How the reads of a job are shared among its priorities while several of them have requests waiting."""

from __future__ import annotations

from collections.abc import Mapping

WEIGHTS = {"high": 12, "normal": 3, "low": 1}
"""Of 16 requests. What a priority leaves goes to the next one, so none is starved and nothing is wasted."""


class Shares:
    """Smooth weighted round robin: the shares hold even if only one request is read at a time.

    Args:
        weights: Weight of each name.
    """

    def __init__(self, weights: Mapping[str, int] = WEIGHTS) -> None:
        self._weights = dict(weights)
        self._total = sum(weights.values())
        self._credit = dict.fromkeys(weights, 0)

    def of(self, count: int) -> dict[str, int]:
        """Divide the next `count` requests."""
        shares = dict.fromkeys(self._weights, 0)
        for _ in range(count):
            for name, weight in self._weights.items():
                self._credit[name] += weight
            chosen = max(self._credit, key=self._credit.__getitem__)
            self._credit[chosen] -= self._total
            shares[chosen] += 1
        return shares
