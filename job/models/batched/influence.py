"""Influence of records on each other: some records of a call become others, and the rows of the rest have to stay.

A sample of values can miss a dependence that is weak, or rare. What is no number cannot be missed: whatever is computed
from it is no number either, at any scale. Operators that swallow it (maxima, comparisons) meet infinite and very large
numbers. Both calls have the same size, so that their kernels round alike, and rows are compared bit by bit.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from cluster_serving.job.models.batched.axes import Reading, take
from cluster_serving.job.models.batched.comparison import distance, equal
from cluster_serving.job.models.batched.growth import Growth, limit
from cluster_serving.job.models.batched.records import Record
from cluster_serving.job.models.batched.rounding import Rounding
from cluster_serving.protocol.errors import InferenceFailed
from cluster_serving.protocol.inputs import Array

Call = Callable[[Sequence[Record]], list[Array]]
"""Computes records together; returns the outputs with the batch first."""

OTHER = "other"
"""Change of a record into another one, of the same draw."""

_NUMBERS = {"nan": np.nan, "infinite": np.inf, "-infinite": -np.inf, "large": 1e30, "-large": -1e30}
_LOUD = 1000

_MOST_BYTES = 64 << 20
_MOST_CALL_S = 0.25
"""Limits of a call of the largest size, which is smaller then."""


class _Base(NamedTuple):
    """Records of a call, in turns, before some of them change; `others` are those that they become."""

    records: Sequence[Record]
    others: Sequence[Record]

    def at(self, place: int) -> Record:
        return self.records[place % len(self.records)]

    def changed(self, place: int, taint: str) -> Record:
        if taint == OTHER:
            return self.others[place % len(self.others)]
        return [_tainted(array, _NUMBERS[taint]) for array in self.at(place)]


class Influence:
    """A search for an output whose rows depend on the other records of a call, on its size, or on their place in it.

    Args:
        call: See `Call`.
        records: Four records that the model computes, and that differ; the last one is unlike the others.
        sizes: Sizes of calls, from the smallest to the largest.
        tolerance: See `Model.tolerance`.
        careful: A value beyond its range may end the process, or keep it in a loop: only values of `records` are tried.
        is_proven: The graph proves that rows do not depend on other records. Places and sizes alone are tried, as it
            tells nothing about kernels.
    """

    def __init__(
        self,
        call: Call,
        records: Sequence[Record],
        sizes: Sequence[int],
        tolerance: float,
        careful: bool,
        is_proven: bool = False,
    ) -> None:
        self._call = call
        self._tolerance = tolerance
        self._most = sys.maxsize
        first, second, third, last = records
        usual = _Base((first, second, third), (second, last, first))
        alike = _Base((first,), (second,))
        self._has_numbers = any(array.dtype.kind in "fc" for array in first) and not careful
        least, middle, most = sizes[0], sizes[min(1, len(sizes) - 1)], sizes[-1]
        if is_proven:
            self._plan: list[tuple[int, _Base, Sequence[str]]] = [
                (size, usual, ()) for size in dict.fromkeys((middle, most, least))
            ]
            return
        some = "nan" if self._has_numbers else OTHER
        # The likeliest come first, as time may end.
        self._plan = [(middle, usual, (some,)), (middle, alike, (OTHER,))]
        loud = [[_loud(array, seed) for seed, array in enumerate(record)] for record in (first, second, third)]
        tainted = _Base(loud, loud[::-1])
        self._plan += [(middle, tainted, ("nan",))] * self._has_numbers
        if most > middle:
            self._plan += [(most, usual, (some,)), (most, alike, (OTHER,))]
        if self._has_numbers:
            self._plan.append((middle, usual, (*_NUMBERS, OTHER)))
            self._plan += [(most, tainted, ("nan",))] * (most > middle)
            self._plan += [(most, usual, ("large", "-large", OTHER))] * (most > middle)
        if least < middle:
            self._plan.append((least, usual, (some,)))

    def find(self, has_time: Callable[[], bool]) -> int | None:
        """Return the index of the first output that is found; None if there is none, or the time is over.

        The first step of the search is always done.
        """
        for index, (size, base, taints) in enumerate(self._plan):
            if index and not has_time():
                return None
            with suppress(InferenceFailed):
                found = self._try(size, base, taints, has_time)
                if found is not None:
                    return found
        return None

    def _try(self, size: int, base: _Base, taints: Sequence[str], has_time: Callable[[], bool]) -> int | None:
        size = min(size, max(self._most, self._plan[0][0]))
        records = [base.at(place) for place in range(size)]
        began = time.monotonic()
        with Growth() as growth:
            before = self._call(records)
        if self._most == sys.maxsize:
            took = max(time.monotonic() - began, 1e-9) / size
            each = max(1, sum(array.nbytes for array in before) // size + sum(array.nbytes for array in records[0]))
            self._most = min(int(_MOST_CALL_S / took), _MOST_BYTES // each, limit() * size // max(1, growth.bytes))
        found = self._misplaced(base, before)
        if found is not None:
            return found
        for taint in taints:
            # A model may refuse what is no number, which tells nothing.
            with suppress(InferenceFailed):
                for number, places in enumerate(apart(size)):
                    if number > 1 and not has_time():
                        return None
                    changed = [base.changed(at, taint) if at in places else records[at] for at in range(size)]
                    found = self._moved(records, before, changed, places)
                    if found is not None:
                        return found
        return None

    def _moved(
        self, records: Sequence[Record], before: Sequence[Array], changed: Sequence[Record], places: frozenset[int]
    ) -> int | None:
        """Return the index of an output of which a row changes with records at other places."""
        rest = [place for place in range(len(records)) if place not in places]
        after = self._call(changed)
        moved = [index for index, pair in enumerate(zip(before, after, strict=True)) if not _same(*pair, rest)]
        if not moved:
            return None
        # Threads may add in any order, from call to call.
        again = self._call(records)
        for index in moved:
            own, once_more, other = (array[rest] for array in (before[index], again[index], after[index]))
            if equal((own, once_more)) or distance(own, other) > 10 * distance(own, once_more):
                return index
        return None

    def _misplaced(self, base: _Base, together: Sequence[Array]) -> int | None:
        """Return the index of an output of which a row differs from that of its record alone."""
        alone = [self._alone(record) for record in base.records]
        for at, record in enumerate(base.records):
            other = alone[at - 1] if len(alone) > 1 else self._alone(base.others[0])
            rounding = Rounding(self._alone, record, alone[at], other, self._tolerance)
            for index, array in enumerate(together):
                places = range(at, len(array), len(base.records))
                if not all(rounding.explains(index, array[place, ...]) for place in places):
                    return index
        return None

    def _alone(self, record: Record) -> list[Array]:
        return [array[0, ...] for array in self._call([record])]


def calling(
    compute: Callable[[Sequence[Array]], list[Array]], reading: Reading, axes: Sequence[int], squeezed: frozenset[int]
) -> Call:
    """Return a function that computes records together, for a model with its batch at these axes."""

    def call(records: Sequence[Record]) -> list[Array]:
        outputs = compute(reading.join(records))
        count = len(records)
        rows = []
        for index, (axis, array) in enumerate(zip(axes, outputs, strict=True)):
            if index in squeezed and count == 1:
                rows.append(array[np.newaxis])
            elif array.ndim <= axis or array.shape[axis] < count:
                raise InferenceFailed("an output does not follow the batch")
            else:
                rows.append(np.stack([take(array, place, axis) for place in range(count)]))
        return rows

    return call


def apart(count: int) -> Iterator[frozenset[int]]:
    """Yield sets of places of a call, such that for each pair of places one set has the first and not the second."""
    every = frozenset(range(count))
    for bit in range((count - 1).bit_length()):
        ones = frozenset(place for place in every if place >> bit & 1)
        yield ones
        yield every - ones


def _tainted(array: Array, number: float) -> Array:
    if array.dtype.kind not in "fc":
        return array
    most = float(np.finfo(array.dtype).max)
    return np.full_like(array, number if not np.isfinite(number) else np.clip(number, -most, most))


def _loud(array: Array, seed: int) -> Array:
    if array.dtype.kind not in "fc":
        return array
    signs = np.random.default_rng(seed).choice([-1, 1], array.shape)
    with np.errstate(over="ignore"):
        return np.asarray(array * signs * _LOUD, array.dtype)


def _same(one: Array, other: Array, places: Sequence[int]) -> bool:
    return one.shape == other.shape and equal((one[places], other[places]))
