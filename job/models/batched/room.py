"""Room for the records of a call: batches of networks that take much memory are computed in several calls."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

from cluster_serving.job.models.batched.growth import Growth, limit
from cluster_serving.protocol.inputs import Array

log = logging.getLogger(__name__)

_SHARE = 8
"""A call may take this part of the memory that is free, or could be freed."""

_LARGER = 2
"""Records that have this many times the numbers of the measured ones are measured anew."""

_LEAST_BYTES = 32 << 20
"""Growth of a process that may have other reasons, such as a library that prepares its kernels."""


class Cost(NamedTuple):
    """Memory that a call takes, at most.

    Attributes:
        each: Bytes for each number of the inputs; 0 if calls take little.
        size: Numbers of the largest record that was measured. More of them may take as much as their square.
    """

    each: float = 0.0
    size: int = 0


class Room:
    """The memory of calls, as far as those before tell.

    Args:
        engine: Name of the engine, for messages.
        is_measured: False if calls take the memory of another device.
    """

    def __init__(self, engine: str, is_measured: bool = True) -> None:
        self.cost = Cost()
        self._engine = engine
        self._is_measured = is_measured
        self._has_begun = False
        # Numbers of the largest call that was measured.
        self._largest = 0
        self._most = 0
        self._is_told = False

    def rows(self, inputs: Sequence[Array]) -> int:
        """Return how many records of a batch a call may have."""
        count, numbers = len(inputs[0]), _numbers(inputs)
        if numbers <= self._most or count < 2 or not self._is_measured:
            return count
        rows = self.most(numbers / count)
        if rows < count and self.cost.each:
            self.tell(numbers / count, rows)
        if rows >= count and numbers <= count * self.cost.size:
            self._most = numbers
        return min(rows, count)

    def most(self, size: float) -> int:
        """Return how many records of so many numbers a call may have; 1 if nothing is known."""
        if not self._largest and not self.cost.each:
            return 1
        # A call may have grown by less without being noticed.
        each = max(self.cost.each, _LEAST_BYTES / self._largest if self._largest else 0.0)
        return max(1, int(self._limit / (each * max(size, 1) * self._factor(size))))

    def tell(self, size: float, rows: int) -> None:
        """Say once that calls have fewer records than batches."""
        if not self._is_told:
            megabytes = self.cost.each * size * self._factor(size) / (1 << 20)
            log.warning(
                "%s: calls have at most %d records of %d numbers, as each takes about %d MB of memory: larger batches "
                "are computed in several calls",
                self._engine,
                rows,
                size,
                round(megabytes),
            )
        self._is_told = True

    @contextmanager
    def measured(self, inputs: Sequence[Array], count: int) -> Iterator[None]:
        """Measure a call that is larger than those before, or has larger records. The first one prepares the next."""
        numbers = _numbers(inputs)
        size = numbers // max(1, count)
        if not self._is_measured or (numbers < 2 * self._largest and size <= _LARGER * self.cost.size):
            yield
            return
        with Growth() as growth:
            yield
        if self._has_begun:
            self._largest = max(self._largest, numbers)
            is_seen = growth.bytes >= _LEAST_BYTES
            each = growth.bytes / max(1, numbers) if is_seen else self.cost.each
            # Larger records tell more: some networks take memory for each number, and others for each pair of them.
            if each >= self.cost.each or size > _LARGER * self.cost.size:
                self.cost = Cost(each, max(size, self.cost.size))
                self._most = 0
        self._has_begun = True

    @cached_property
    def _limit(self) -> int:
        """Bytes that a call may take."""
        return limit(_SHARE)

    def _factor(self, size: float) -> float:
        return max(1.0, size / self.cost.size) if self.cost.size else 1.0


def _numbers(inputs: Sequence[Array]) -> int:
    return sum(array.size for array in inputs)
