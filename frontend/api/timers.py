"""Times as the original's `/metrics` gives them: count, rate, and percentiles of the latest ones."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Sequence

_KEPT = 1028
_PERCENTILES = {"_75th": 0.75, "_95th": 0.95, "_98th": 0.98, "_99th": 0.99, "_999th": 0.999}


class Timer:
    """How long something took, each time.

    Args:
        name: Name in the list of metrics.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self._began = time.monotonic()
        self._latest: deque[float] = deque(maxlen=_KEPT)

    def update(self, seconds: float) -> None:
        """Note that it took so long."""
        self.count += 1
        self._latest.append(seconds)

    def as_json(self, prefix: str) -> dict[str, str | float]:
        """The fields of the original: milliseconds, of the latest times; the rate is per second, since the start."""
        values = sorted(1000 * seconds for seconds in self._latest) or [0.0]
        return {
            "name": f"{prefix}{self.name}",
            "count": self.count,
            "meanRate": self.count / max(time.monotonic() - self._began, 1e-9),
            "min": values[0],
            "max": values[-1],
            "mean": statistics.fmean(values),
            "median": percentile(values, 0.5),
            "stdDev": statistics.pstdev(values),
            **{f"{name}Percentile": percentile(values, share) for name, share in _PERCENTILES.items()},
        }


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by this share of all values.

    Args:
        ordered: At least one value, ascending.
        share: From 0 to 1.
    """
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
