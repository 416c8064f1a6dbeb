"""Arithmetic of a measurement: percentiles, stability, arrival times, ratios. No clock and no network here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float64]
"""One number per request."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies of one measurement, in milliseconds; NaN if nothing was answered.

    Attributes:
        p50: Half of the requests were faster.
        p95: 95 % were.
        p99: 99 % were.
        max: The slowest.
        mean: Average.
    """

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
        # "higher": a percentile is a latency that was measured, and the tail is not flattered.
        ranks = np.percentile(seconds, [50, 95, 99, 100], method="higher")
        return cls(*(round(float(value) * 1000, 4) for value in (*ranks, seconds.mean())))


def is_stable(rates: Sequence[float], tolerance: float = 0.1, windows: int = 3) -> bool:
    """Whether the last windows agree: none is farther than `tolerance` from their mean, and none is empty.

    Args:
        rates: Requests per second of each window so far.
        tolerance: Largest deviation, as a part of the mean.
        windows: How many windows must agree.
    """
    last = rates[-windows:]
    if len(last) < windows or min(last) <= 0:
        return False
    mean = sum(last) / windows
    return all(abs(rate - mean) <= tolerance * mean for rate in last)


def poisson_arrivals(rate: float, seed: int) -> Iterator[float]:
    """Endless arrival times in seconds from 0, with independent exponential gaps of mean `1 / rate`.

    Args:
        rate: Requests per second.
        seed: The same seed gives the same times.
    """
    random = np.random.default_rng(seed)
    now = 0.0
    while True:
        for gap in random.exponential(1 / rate, 1024):
            now += float(gap)
            yield now


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratio of two things that were measured in turns.

    Attributes:
        median: Of the ratios of the rounds.
        low: Smallest of them.
        high: Largest of them.
        rounds: How many.
    """

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Ratio | None:
        """Pair the rounds of both, in order; None if there is none in which both were measured."""
        ratios = [a / b for a, b in zip(ours, theirs, strict=False) if a > 0 and b > 0]
        return (
            cls(round(median(ratios), 4), round(min(ratios), 4), round(max(ratios), 4), len(ratios)) if ratios else None
        )
