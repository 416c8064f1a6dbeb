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
    if len(last) < STABLE_WINDOWS or min(last) <= 0:
        return False
    mean = sum(last) / STABLE_WINDOWS
    return all(abs(rate - mean) <= 0.1 * mean for rate in last)


def poisson_arrivals(rate: float, seed: int) -> Iterator[float]:
    """Yield arrival times in seconds from 0, without end, with independent exponential gaps of mean `1 / rate`."""
    random = np.random.default_rng(seed)
    now = 0.0
    while True:
        for gap in random.exponential(1 / rate, 1024):
            now += float(gap)
            yield now


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratio of two servers that were measured in turns: median, smallest and largest ratio of the rounds."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Ratio | None:
        """Pair the rounds of both, in order. Return None if there is no round in which both were measured."""
        ratios = [a / b for a, b in zip(ours, theirs, strict=False) if a > 0 and b > 0]
        if not ratios:
            return None
        return cls(round(median(ratios), 4), round(min(ratios), 4), round(max(ratios), 4), len(ratios))
