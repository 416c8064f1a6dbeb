"""Counts of a slot, which its parts make in memory, and which leave the process together."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from cluster_serving.protocol.figures.metrics import Metric


class Counts:
    """Counts of one slot since they were last taken; any thread may add to them.

    Attributes:
        slot: Index of the slot.
        gauges: Functions that return the present values of gauges, by field.
        writing: Held by the thread that writes the counts to Redis.
    """

    def __init__(self, slot: int = 0) -> None:
        self.slot = slot
        self.gauges: dict[str, Callable[[], int]] = {}
        self.writing = threading.Lock()
        self._lock = threading.Lock()
        self._values: defaultdict[str, int] = defaultdict(int)

    def add(self, metric: Metric, count: int = 1, label: str = "") -> None:
        """Add to a counter."""
        name = f"{metric.name}:{label}" if label else metric.name
        with self._lock:
            self._values[name] += count

    def observe(self, *values: tuple[Metric, int, int], also: Sequence[tuple[str, int]] = ()) -> None:
        """Add to histograms: to each a value, in microseconds for seconds, and how often it counts.

        What is `also` added is given by its field. All this is one step, since each costs the hot path.
        """
        with self._lock:
            counts = self._values
            for name, count in also:
                counts[name] += count
            for metric, value, count in values:
                counts[metric.fields[bisect_left(metric.bounds, value)]] += count
                counts[metric.sum] += value * count

    def take(self) -> dict[str, int]:
        """Return the counts, by field, and begin again."""
        # Each of fifty idle models is asked once a second.
        if not self._values:
            return {}
        with self._lock:
            values, self._values = self._values, defaultdict(int)
        return values

    def give_back(self, values: Mapping[str, int]) -> None:
        """Add counts that were taken."""
        with self._lock:
            for name, count in values.items():
                self._values[name] += count
