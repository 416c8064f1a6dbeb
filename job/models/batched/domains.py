"""Whole numbers and texts that a model takes: the rows of its tables, say, and the words that it knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cluster_serving.job.models.batched.growth import Growth, limit
from cluster_serving.job.models.batched.records import Record, has_indices
from cluster_serving.protocol.errors import InferenceFailed
from cluster_serving.protocol.inputs import Array

_BITS = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
_BITS_MORE = 8
"""Bits of the whole numbers that are tried, and of the growth of memory that is foreseen: the square of the next."""

_NEGATIVE = -16
_MOST_COLUMNS = 16
"""Longest vector whose columns may be places in tables of their own."""

_MOST_PARTS = 64
"""Number of calls in which other records have all numbers of a table, or all words, in turns."""


class _Domain(NamedTuple):
    """Values of one input: whole numbers from `least` to `most`, an array like a record; or `words`, if there are any.

    Words are drawn by their places, from 0 to `most`.
    """

    least: int
    most: Array
    dtype: np.dtype[Any]
    words: Array | None = None

    @property
    def size(self) -> int:
        """Number of values from 0 on."""
        return int(self.most.max(initial=0)) + 1

    def of(self, places: Array) -> Array:
        """Return values of numbers that may be larger than those of a column."""
        own = np.minimum(places, self.most)
        return own.astype(self.dtype) if self.words is None else self.words[own]


class Domains:
    """Values of the inputs of a model that are whole numbers or texts, as far as calls tell.

    Args:
        compute: Computes a record alone; raises `InferenceFailed` for a number that the model does not take.
        record: A record that the model computes.
        words: Texts that the model knows.
        has_time: Returns False when nothing more is to be tried.
    """

    def __init__(
        self,
        compute: Callable[[Record], object],
        record: Record,
        words: Sequence[str],
        has_time: Callable[[], bool],
    ) -> None:
        self._compute = compute
        self._record = record
        self._has_time = has_time
        self._generator = np.random.default_rng(0)
        known = np.array(words, object)
        self._domains = [
            self._of_numbers(at)
            if has_indices(array)
            else _Domain(0, np.full(array.shape, len(known) - 1), array.dtype, known)
            if array.dtype == object and words
            else None
            for at, array in enumerate(record)
        ]

    def groups(self, count: int) -> Iterator[list[Record]]:
        """Yield groups of so many records: of numbers of any size; of neighbours of one size; equal ones; the last."""
        bits = [0 if one is None else (one.size - 1).bit_length() for one in self._domains]
        turns = np.arange(count)

        def sized(shape: tuple[int, ...], of_bits: Array, alike: bool) -> Array:
            most = (1 << of_bits.reshape(-1, *[1] * len(shape))) - 1
            return self._generator.integers((most + 1) // 2 * alike, most, (count, *shape), endpoint=True)

        def any_size(at: int, shape: tuple[int, ...]) -> Array:
            found = sized(shape, self._generator.integers(1, max(1, bits[at]), count, endpoint=True), False)
            least = _least(self._domains[at])
            found[3::4] = np.maximum(-found[3::4], least) if least else found[3::4]
            return found

        yield self._made(count, any_size)
        yield self._made(count, lambda at, shape: sized(shape, 1 + turns * bits[at] // count, True))
        yield self._made(count, lambda at, shape: np.broadcast_to(self._pairs(at, len(shape), count), (count, *shape)))
        last = [0 if one is None else max(0, one.size - 1) for one in self._domains]
        yield self._made(
            count,
            lambda at, shape: last[at] - self._generator.integers(0, 1 + last[at] // _MOST_PARTS, (count, *shape)),
        )

    def parts(self, count: int) -> Iterator[list[Record]]:
        """Yield records that have each value once, in parts of so many records; of a large table, some of them."""
        sizes = [0 if one is None else max(1, one.most.size) * count for one in self._domains]
        orders = [
            None
            if one is None
            else self._generator.permutation(one.size)
            if one.size <= _MOST_PARTS * size
            else self._generator.integers(0, one.size, _MOST_PARTS * size)
            for one, size in zip(self._domains, sizes, strict=True)
        ]
        number = max((-(-len(order) // size) for order, size in zip(orders, sizes, strict=True) if order is not None))
        for part in range(number):

            def taken(at: int, shape: tuple[int, ...], part: int = part) -> Array:
                order: Array = orders[at]  # type: ignore[assignment]
                return np.take(order, np.arange(part * sizes[at], (part + 1) * sizes[at]), mode="wrap").reshape(
                    count, *shape
                )

            yield self._made(count, taken)

    def _pairs(self, at: int, rank: int, count: int) -> Array:
        """Return a number for each two neighbours."""
        domain = self._domains[at]
        drawn = self._generator.integers(0, domain.size if domain else 1, -(-count // 2))
        return drawn.repeat(2)[:count].reshape(-1, *[1] * rank)

    def _made(self, count: int, draw: Callable[[int, tuple[int, ...]], Array]) -> list[Record]:
        """Return records with such values in each input that has a domain."""
        drawn = [
            None if domain is None else domain.of(draw(at, own.shape))
            for at, (own, domain) in enumerate(zip(self._record, self._domains, strict=True))
        ]
        return [
            [own if values is None else values[index, ...] for own, values in zip(self._record, drawn, strict=True)]
            for index in range(count)
        ]

    def _of_numbers(self, at: int) -> _Domain:
        own = self._record[at]
        every = np.ones(own.shape, bool)
        largest = int(np.iinfo(own.dtype).max)
        most = np.full(own.shape, self._largest(at, every), np.int64)
        if own.ndim == 1 and 1 < own.size <= _MOST_COLUMNS:
            # The columns of a table may have categories of their own.
            for column in range(own.size):
                only = np.arange(own.size) == column
                if most[column] < largest and self._has_time() and self._takes(at, only, int(most[column]) + 1):
                    most[column] = self._largest(at, only)
        possible = (-int(most.min(initial=0)), _NEGATIVE) if own.dtype.kind == "i" and own.size else ()
        least = next((number for number in possible if number < 0 and self._takes(at, every, number)), 0)
        return _Domain(least, np.maximum(most, own.astype(np.int64)), own.dtype)

    def _largest(self, at: int, where: Array) -> int:
        """Return the largest number that the model takes at these places of an input."""
        taken, refused = 0, 0
        for bits in _BITS:
            number = min((1 << bits) - 1, int(np.iinfo(self._record[at].dtype).max))
            if number <= taken:
                return taken
            takes = self._takes(at, where, number)
            if takes is None:
                return taken
            if not takes:
                refused = number
                break
            taken = number
        while refused - taken > 1 and self._has_time():
            middle = (taken + refused) // 2
            if self._takes(at, where, middle):
                taken = middle
            else:
                refused = middle
        return taken

    def _takes(self, at: int, where: Array, number: int) -> bool | None:
        """Return True if the model takes a number; None if a larger one may be a size, and take too much memory."""
        record = list(self._record)
        record[at] = np.where(where, np.asarray(number, record[at].dtype), record[at])
        try:
            with Growth() as growth:
                self._compute(record)
        except InferenceFailed:
            return False
        return None if growth.bytes << _BITS_MORE > limit() or not self._has_time() else True


def _least(domain: _Domain | None) -> int:
    return domain.least if domain else 0


def has_domains(record: Record, words: Sequence[str]) -> bool:
    """Return True if values of an input are whole numbers that may be places, or texts that are known."""
    return any(has_indices(array) or (array.dtype == object and bool(words)) for array in record)
