"""Rounding: how much the rows of one record may differ between calls of other sizes, and at other places of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cluster_serving.job.models.base import ROUGH
from cluster_serving.job.models.batched.comparison import ROUNDING, distance, equal, largest
from cluster_serving.job.models.batched.records import Record
from cluster_serving.protocol.inputs import Array

_TRIES = 3
_TRIES_OF_LABELS = 16
"""Of two numbers that are equal, each try may move both in the same direction."""

# Kernels for other sizes add numbers in another order, in each layer; a change of the inputs goes through all of them.
_TIMES = 8
_MOST_OF_SPREAD = 0.2
_WITHOUT_DIGITS = 10
_MOST_VARIANTS = 3
"""Kernels are of a few kinds, so calls of many sizes make a few variants of a row; a formula makes one for each."""
_FINE, _COARSE = 2.0**-22, 2.0**-8


class Rounding:
    """What a change in the last digits of a record's inputs makes of its rows.

    Networks amplify rounding by as much as they are sensitive: a normalization without spread does a lot, and a sum
    nothing. So the measure is the network itself. Of inputs without digits, such as indices, a share of the spread is.

    Args:
        row: Returns the outputs of a record that is computed alone, one array for each.
        record: The record.
        own: Its outputs.
        other: Outputs of another record, for the spread.
        tolerance: See `Model.tolerance`.
    """

    def __init__(
        self,
        row: Callable[[Record], Sequence[Array]],
        record: Record,
        own: Sequence[Array],
        other: Sequence[Array],
        tolerance: float,
    ) -> None:
        self._row = row
        self._record = record
        self._own = own
        self._other = other
        self._tolerance = tolerance
        self._tried: list[Sequence[Array]] = []
        # Output → rows that only a share of the spread explains, and that are further apart than rounding.
        self._variants: dict[int, list[Array]] = {}

    def explains(self, output: int, rows: Array) -> bool:
        """Return True if rounding may make these rows of the record's own."""
        own = self._own[output]
        if own.shape != rows.shape[1:]:
            return False
        every = np.broadcast_to(own, rows.shape)
        if equal((every, rows)):
            return True
        if own.dtype.kind not in "fc":
            # The nearest of two classes, or of two whole numbers: the last digits decide.
            return any(not equal((own, self._changed(number)[output])) for number in self._numbers(_TRIES_OF_LABELS))
        far = distance(every, rows)
        rounding = 2 * ROUNDING * largest(own)
        if far <= rounding:
            return True
        spread = distance(own, self._other[output])
        spread = spread if np.isfinite(spread) else 0.0
        if far <= self._tolerance * spread * (1 if self._has_digits else _WITHOUT_DIGITS):
            return self._are_few(output, rows, rounding)
        # Infinite if the last digits decide what is a number.
        noise = max((distance(own, self._changed(number)[output]) for number in self._numbers(_TRIES)), default=0.0)
        return far <= min(_TIMES * noise, max(_MOST_OF_SPREAD * spread, _TIMES * rounding))

    def explains_places(self, output: int, rows: Array) -> bool:
        """Return True if rounding may make these rows of several places of one call.

        All places have the same kernels but for the last ones of a block, so only the last digits may differ.
        """
        first = np.broadcast_to(rows[0], rows.shape)
        if self._tolerance >= ROUGH or not self._has_digits or rows.dtype.kind not in "fc" or equal((first, rows)):
            return True
        far = distance(first, rows)
        if far <= 2 * ROUNDING * largest(self._own[output]):
            return True
        noise = max(distance(self._own[output], self._changed(number)[output]) for number in self._numbers(_TRIES))
        return far <= _TIMES * noise

    def _are_few(self, output: int, rows: Array, rounding: float) -> bool:
        """Return True if a few kinds of kernels may have made these rows, and those of the calls before.

        Calls of each size have rows of their own if the number of records is part of the answer, however little.
        """
        if self._tolerance >= ROUGH:
            return True
        known = self._variants.setdefault(output, [])
        for row in rows:
            if all(distance(row, one) > rounding for one in (self._own[output], *known)):
                known.append(row)
        noise = [distance(self._own[output], self._changed(number)[output]) for number in self._numbers(_TRIES)]
        return len(known) <= _MOST_VARIANTS or _TIMES * max(noise, default=0.0) >= max(
            distance(self._own[output], one) for one in known
        )

    @property
    def _has_digits(self) -> bool:
        return any(array.dtype.kind in "fc" for array in self._record)

    def _numbers(self, tries: int) -> range:
        return range(tries if self._has_digits else 0)

    def _changed(self, number: int) -> Sequence[Array]:
        """Return the outputs of the record with other last digits, in a number of ways."""
        while len(self._tried) <= number:
            # Each second one in the other direction: of two numbers, one is the larger one once if their signs differ.
            generator = np.random.default_rng(len(self._tried) // 2)
            sign = (-1) ** len(self._tried)
            self._tried.append(self._row([self._moved(generator, sign, array) for array in self._record]))
        return self._tried[number]

    def _moved(self, generator: np.random.Generator, sign: int, array: Array) -> Array:
        if array.dtype.kind not in "fc":
            return array
        step = max(_COARSE if self._tolerance >= ROUGH else _FINE, float(np.finfo(array.dtype).eps))
        return np.asarray(array * (1 + sign * step * generator.choice([-1, 1], array.shape)), array.dtype)
