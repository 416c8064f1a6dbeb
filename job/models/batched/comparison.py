"""Comparison of an output of records alone and together: where is the batch, and does a row depend on the others?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from cluster_serving.job.models.batched.axes import take
from cluster_serving.protocol.inputs import Array

ROUNDING = 1e-5
"""Difference, relative to the largest number, that rounding explains."""

_OF_SPREAD = 50
_MOST_OF_SPREAD = 0.2
_OTHER_OF_SPREAD = 0.05
"""Difference, relative to that between records, that no common scale of a quantized network explains."""


class Together(NamedTuple):
    """An output of a call: the records in it, by index, and the array."""

    order: tuple[int, ...]
    array: Array


class Seen(NamedTuple):
    """Findings about one output, from one draw of records.

    Attributes:
        axis: Axis of the batch; None if the output does not follow it.
        squeezed: The output loses the axis in a batch of one.
        agrees: The rows are those of the records alone, and do not depend on other records. None if the records'
            outputs do not differ, so that nothing can be told.
        shapes: All shapes of the output.
        is_float: The output has numbers that are rounded.
        constant: The row of every record, if all are the same.
        mixes: Other records beside the same one have changed its row.
        differs: Rows together are not at all those alone; rounding, or a common scale, does not explain it.
    """

    axis: int | None
    squeezed: bool
    agrees: bool | None
    mixes: bool
    differs: bool
    shapes: frozenset[tuple[int, ...]]
    is_float: bool
    constant: Array | None = None


class OutputComparison:
    """Comparison of one output.

    Args:
        alone: Output of each record alone.
        together: Output of calls with several records; empty if the model takes one record a call.
        fixed: Size of the batch, if the model takes no other; a call with a record alone has copies of it then.
        tolerance: See `Model.tolerance`.
    """

    def __init__(
        self, alone: Sequence[Array], together: Sequence[Together], fixed: int | None, tolerance: float
    ) -> None:
        self._alone = alone
        self._together = together
        self._fixed = fixed if together else 1
        self._tolerance = tolerance

    def seen(self) -> Seen:
        """Return the findings."""
        found = [self._seen(axis, squeezed) for axis, squeezed in self._candidates()]
        return next((one for one in found if one.agrees is not False), found[0] if found else self.nowhere())

    def nowhere(self) -> Seen:
        """Return the findings about an output that does not follow the batch."""
        return self._seen(None, False)

    def _seen(self, axis: int | None, squeezed: bool) -> Seen:
        arrays = [*self._alone, *(one.array for one in self._together)]
        shapes = frozenset(array.shape for array in arrays)
        is_float = self._alone[0].dtype.kind in "fc"
        if axis is None:
            return Seen(None, False, None, False, False, shapes, is_float)
        own = [array if squeezed else take(array, 0, axis) for array in self._alone]
        rows = [take(array, index, axis) for order, array in self._together for index in range(len(order))]
        constant = own[0] if all(equal((own[0], row)) for row in (*own, *rows)) else None
        return Seen(axis, squeezed, *self._agrees(own, axis), shapes, is_float, constant)

    def _candidates(self) -> Iterator[tuple[int, bool]]:
        """Yield the axes that may be the batch by their sizes, each with True if a batch of one lacks it."""
        shape = self._alone[0].shape
        if any(array.shape != shape for array in self._alone):
            return
        if self._fixed is not None:
            for axis, size in enumerate(shape):
                if size == self._fixed and (size > 1 or axis == 0):
                    yield axis, False
            return
        for squeezed in (False, True):
            for axis in range(len(shape) + squeezed):
                others = shape if squeezed else (*shape[:axis], *shape[axis + 1 :])
                if (squeezed or shape[axis] == 1) and all(
                    one.array.shape == (*others[:axis], len(one.order), *others[axis:]) for one in self._together
                ):
                    yield axis, squeezed

    def _agrees(self, own: Sequence[Array], axis: int) -> tuple[bool | None, bool, bool]:
        """Return `Seen.agrees`, `Seen.mixes` and `Seen.differs`."""
        # Records beyond those alone are only there for the others.
        pairs, quiet = [], []
        for order, array in self._together:
            found = [(own[at], take(array, place, axis)) for place, at in enumerate(order) if at < len(own)]
            pairs += found
            quiet += found if len(found) == len(order) else []
        # Rows at the same place of calls of one size. Of the same record, all that differs is the other records.
        beside: list[tuple[Array, Array]] = []
        changed: list[tuple[Array, Array]] = []
        for one, other in combinations(self._together, 2):
            if len(one.order) == len(other.order):
                for position, record in enumerate(one.order):
                    rows = take(one.array, position, axis), take(other.array, position, axis)
                    (beside if record == other.order[position] else changed).append(rows)
        if own[0].dtype.kind not in "fc":
            mixes = not all(map(equal, beside))
            same = not mixes and all(map(equal, pairs))
            agrees = None if same and all(equal((own[0], other)) for other in own[1:]) else same
            return agrees, mixes, 2 * sum(map(equal, quiet)) < len(quiet)
        most = max(map(largest, own))
        # Infinite if the records differ in which numbers are finite.
        spread = max((distance(own[0], other) for other in own[1:]), default=0.0)
        scale = spread if np.isfinite(spread) else 0.0
        rounding = ROUNDING * most
        differs = _most(quiet) > max(_OTHER_OF_SPREAD * scale, 5 * rounding)
        if _most(beside) > max(rounding, self._tolerance / 10 * scale):
            return False, True, differs
        if spread <= 5 * rounding:
            # Differences may be as small as rounding. Then the rows tell that change with their own record alone.
            tells = beside and all(map(equal, beside)) and not all(map(equal, changed))
            return (True if tells else None), False, False
        # Kernels for batches of another size round in another way.
        allowed = max(2 * rounding, min(_OF_SPREAD * self._tolerance, _MOST_OF_SPREAD) * scale)
        return _most(pairs) <= allowed, False, differs


def alike(alone: Array, together: Array, tolerance: float) -> bool:
    """Return True if two batches of rows are the same but for rounding."""
    if alone.shape != together.shape:
        return False
    if alone.dtype.kind not in "fc":
        return np.array_equal(alone, together)
    return distance(alone, together) <= max(2 * ROUNDING, tolerance) * max(largest(alone), largest(together))


def equal(pair: tuple[Array, Array]) -> bool:
    """Return True if two arrays are the same, bit by bit; a value that is no number is the same as another one."""
    return np.array_equal(*pair, equal_nan=pair[0].dtype.kind in "fc")


def _most(pairs: Sequence[tuple[Array, Array]]) -> float:
    return max((distance(one, other) for one, other in pairs), default=0.0)


def largest(array: Array) -> float:
    """Return the largest number without its sign."""
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0


def distance(one: Array, other: Array) -> float:
    """Return the largest difference; infinite if values that are no numbers differ."""
    if one.shape != other.shape:
        return float("inf")
    known, also = np.isfinite(one), np.isfinite(other)
    if not np.array_equal(known, also) or not np.array_equal(one[~known], other[~also], equal_nan=True):
        return float("inf")
    wide = complex if one.dtype.kind == "c" else float
    return float(np.abs(one[known].astype(wide) - other[known].astype(wide)).max(initial=0))
