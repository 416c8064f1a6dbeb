"""Arithmetic of a measurement: percentiles, stability, arrival times and ratios."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]
"""One number per request."""

STABLE_WINDOWS = 3
"""Number of windows that have to agree."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles, maximum and mean of the latencies of one measurement, in ms; NaN if nothing was answered."""

    p50: float
    p95: float
    p99: float
    max: float
    mean: float

    @classmethod
    def of(cls, seconds: Samples) -> Latency:
        """Summarize latencies given in seconds."""
        if not seconds.size:
            return cls(*[float("nan")] * 5)
        # "higher" gives a latency that was measured; interpolation would make the tail look shorter.
        ranks = np.percentile(seconds, [50, 95, 99, 100], method="higher")
        return cls(*(round(float(value) * 1000, 4) for value in (*ranks, seconds.mean())))


def is_stable(rates: Sequence[float]) -> bool:
    """Return True if the rates of the last three windows are within 10 % of their mean, and none is zero."""
    last = rates[-STABLE_WINDOWS:]
    return len(last) == STABLE_WINDOWS and min(last) > 0 and bool(np.allclose(last, np.mean(last), rtol=0.1, atol=0))


def poisson_arrivals(rate: float, seed: int) -> Iterator[float]:
    """Yield arrival times in seconds from 0, without end, with independent exponential gaps of mean `1 / rate`."""
    random = np.random.default_rng(seed)
    now = 0.0
    while True:
        for gap in random.exponential(1 / rate, 1024):
            now += float(gap)
            yield now


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float] | None:
    """Return the ratio of two servers that were measured in turns: `median`, `low` and `high` of the `rounds`.

    The rounds of both are paired in order. Without a round in which both were measured, there is no ratio.
    """
    ratios = [a / b for a, b in zip(ours, theirs, strict=True) if a > 0 and b > 0]
    if not ratios:
        return None
    low, high = round(min(ratios), 4), round(max(ratios), 4)
    return {"median": round(median(ratios), 4), "low": low, "high": high, "rounds": len(ratios)}
