"""Whole numbers and texts that a model takes: the rows of its tables, say, and the words that it knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
_FAR = 2.0**53
"""Numbers from here on are no whole numbers for sure."""

_MOST_COLUMNS = 40
"""Longest vector whose columns may be places in tables of their own."""

_MOST_PARTS, _MOST_PARTS_KNOWN = 64, 256
"""Numbers of calls in which other records have all numbers of a table, or all values that are known, in turns."""


_VALUES_OF_FEW = 3
"""Number of values that all records of a call have, in any order: some of them agree."""

_COMPARED_GROUPS = 3
"""Number of groups of the numbers that a model compares with, and of groups of these and numbers beside them.

Some rules ask for one in each of several columns.
"""

_LONGEST = 3
"""Number of the longest texts of a call that has no other texts: together, more may be too much for a model."""

_SENTENCE = 8
"""Number of words of a text of several."""

_OTHER_TEXTS = (
    *("", " ", "a", "A", "the", "no", "yes", "0", "1", "-1", "3.5", "10000", "2024-05-06", "x@y.org", "ümläut", "日本"),
    *("male", "female", "true", "False", "nan", "None", "unknown", "[UNK]", "the end.", "a b c d e f", "x" * 200),
    *("the end of the day", "20240506123456", "YES", "THE END", "no!", "y" * 200, "A1-B2/C3", "https://a.org/b?c=1"),
    *(" ".join(["word"] * count) for count in (12, 30, 100, 400)),
)
"""Texts for any model."""


class _Domain(NamedTuple):
    """Whole numbers of one input: from `least` to `most`, an array like a record of it.

    If the input has `values`, the numbers are places in `values`, where the first `own` are the model's. Only negative
    numbers are less than `floor`.
    """

    least: int
    most: Array
    dtype: np.dtype[Any]
    values: Array | None = None
    floor: int = 0
    own: int = 0

    @property
    def last(self) -> int:
        """Largest number of all columns."""
        return int(self.most.max(initial=0))

    @property
    def bits(self) -> int:
        """Bits of the largest number."""
        return self.last.bit_length()

    def of(self, numbers: Array) -> Array:
        """Return numbers as values of the input; a number that is too large for its column becomes the largest one."""
        places = np.minimum(np.where((numbers >= 0) & (numbers < self.floor), self.floor, numbers), self.most)
        return (places if self.values is None else self.values[places]).astype(self.dtype)


_Draw = Callable[[_Domain], Array]
"""Returns a number for each place of several records of an input; or for each record, which all its places have."""


class Domains:
    """Values of the inputs of a model that are whole numbers, as far as calls tell; and of those that are texts.

    Args:
        compute: Computes a record alone; raises `InferenceFailed` for a number that the model does not take.
        record: A record that the model computes.
        known: Values that the model knows (`Model.known`). Whole numbers among them are taken in place of all others.
        careful: No other values may be taken.
        has_time: Returns False when nothing more is to be tried.
        bounds: See `Graph.bounds`.
    """

    def __init__(
        self,
        compute: Callable[[Record], object],
        record: Record,
        known: Sequence[str | int],
        careful: bool,
        has_time: Callable[[], bool],
        bounds: Sequence[Array] = (),
    ) -> None:
        self._compute = compute
        self._compared = _whole(bounds)
        self._record = record
        self._has_time = has_time
        self._limit = limit()
        self._generator = np.random.default_rng(0)
        numbers = [number for number in known if isinstance(number, int)]
        known_texts = [text for text in known if isinstance(text, str)]
        texts = _texts(known_texts, careful)
        self._domains: dict[int, _Domain] = {}
        for at, array in enumerate(record):
            if array.dtype == object and len(texts):
                self._domains[at] = self._of_values(array, texts, len(known_texts))
            elif has_indices(array) and numbers:
                fitting = _fitting(numbers, array)
                self._domains[at] = self._of_values(array, fitting, len(fitting))
            elif has_indices(array) and not careful:
                self._domains[at] = self._of_numbers(at)

    @property
    def is_any(self) -> bool:
        """True if an input has values to be tried."""
        return bool(self._domains)

    def groups(self, count: int) -> Iterator[list[Record]]:
        """Yield groups of so many records: of numbers of any size, of one size, of a range, equal, a few, large."""
        generator, turns = self._generator, np.arange(count)

        def sized(domain: _Domain, bits: Array, alike: bool) -> Array:
            most = (1 << _upright(bits, domain)) - 1
            return generator.integers((most + 1) // 2 * alike, most, (count, *domain.most.shape), endpoint=True)

        def any_size(domain: _Domain) -> Array:
            found = sized(domain, generator.integers(1, max(1, domain.bits), count, endpoint=True), False)
            if domain.least:
                found[3::4] = np.maximum(-1 - found[3::4], domain.least)
                found[7::8] = domain.least
            return found

        def pairs(domain: _Domain) -> Array:
            drawn = generator.integers(0, domain.last, -(-count // 2), endpoint=True)
            return _upright(drawn.repeat(2)[:count], domain)

        def near(domain: _Domain) -> Array:
            # The model may look at the difference of two numbers: these numbers have each small difference at some
            # places.
            first = generator.integers(0, max(0, domain.last - count), endpoint=True)
            return _upright(first + generator.permutation(count), domain)

        def few(domain: _Domain) -> Array:
            chosen = generator.integers(0, domain.own or domain.last + 1, _VALUES_OF_FEW)
            return generator.choice(chosen, (count, *domain.most.shape))

        def largest(domain: _Domain) -> Array:
            if domain.values is not None and domain.values.dtype == object:
                longest = np.argsort([len(text) for text in domain.values])[-_LONGEST:]
                return generator.choice(longest, (count, *domain.most.shape))
            most = domain.last // _MOST_PARTS
            return domain.last - generator.integers(0, most, (count, *domain.most.shape), endpoint=True)

        yield self._made(count, any_size)
        yield self._made(count, lambda domain: sized(domain, 1 + turns * domain.bits // count, True))
        yield self._made(count, near)
        yield self._made(count, pairs)
        yield self._made(count, few)
        yield self._made(count, largest)
        # Lengths of sequences, which some models want in order.
        yield self._made(count, lambda domain: -np.sort(-any_size(domain), axis=0))

        def of(numbers: Array, domain: _Domain) -> Array:
            fitting = numbers[(numbers >= domain.least) & (numbers <= domain.last)]
            if domain.values is not None or not fitting.size:
                return any_size(domain)
            return generator.choice(fitting, (count, *domain.most.shape))

        for numbers in filter(len, self._compared):
            for _ in range(_COMPARED_GROUPS):
                yield self._made(count, partial(of, numbers))

    def parts(self, count: int) -> Iterator[list[Record]]:
        """Yield records that have each value once, in parts of so many records; of a large table, some of them."""
        orders = {id(domain): self._order(domain, count) for domain in self._domains.values()}
        for part in range(max(len(order) for order in orders.values())):

            def taken(domain: _Domain, part: int = part) -> Array:
                order = orders[id(domain)]
                numbers: Array = order[part % len(order)]
                return numbers

            yield self._made(count, taken)

    def _order(self, domain: _Domain, count: int) -> Array:
        """Return each number once, or some, as parts with so many records each; the last part begins anew."""
        size = max(1, domain.most.size) * count
        every = domain.last + 1
        most = size * (_MOST_PARTS if domain.values is None else _MOST_PARTS_KNOWN)
        generator = self._generator
        numbers: Array = generator.permutation(every) if every <= most else generator.integers(0, every, most)
        parts: Array = np.resize(numbers, (-(-len(numbers) // size), count, *domain.most.shape))
        return parts

    def _made(self, count: int, draw: _Draw) -> list[Record]:
        """Return `count` records with values of `draw` in each input that has a domain."""
        drawn = {
            at: np.broadcast_to(domain.of(draw(domain)), (count, *domain.most.shape))
            for at, domain in self._domains.items()
        }
        return [
            [drawn[at][index, ...] if at in drawn else own for at, own in enumerate(self._record)]
            for index in range(count)
        ]

    def _of_values(self, array: Array, values: Array, own: int) -> _Domain:
        every = [*self._generator.permutation(own), *own + self._generator.permutation(len(values) - own)]
        return _Domain(0, np.full(array.shape, len(values) - 1), array.dtype, values[every], own=own)

    def _of_numbers(self, at: int) -> _Domain:
        own = self._record[at]
        every = np.ones(own.shape, bool)
        # A number of something may not be 0.
        floor = 0 if self._takes(at, every, 0) is not False else min(1, int(own.min(initial=1)))
        largest = int(np.iinfo(own.dtype).max)
        most = np.full(own.shape, self._largest(at, every), np.int64)
        if own.ndim == 1 and 1 < own.size <= _MOST_COLUMNS:
            # The columns of a table may have categories of their own.
            for column in range(own.size):
                only = np.arange(own.size) == column
                if most[column] < largest and self._has_time() and self._takes(at, only, int(most[column]) + 1):
                    most[column] = self._largest(at, only)
        far = -int(most.min()) if own.size else 0
        # All numbers of 8 bits, if the model takes the largest one.
        far -= int(own.dtype == np.int8 and -far == largest)
        possible = (far, _NEGATIVE) if own.dtype.kind == "i" else ()
        least = next((number for number in possible if number < 0 and self._takes(at, every, number)), 0)
        return _Domain(least, np.maximum(most, own.astype(np.int64)), own.dtype, floor=floor)

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
        return None if growth.bytes << _BITS_MORE > self._limit or not self._has_time() else True


def _whole(bounds: Sequence[Array]) -> tuple[Array, Array]:
    """Return the whole numbers that are bounds, and the same with those beside all bounds."""
    every = np.concatenate([np.zeros(0), *(array.reshape(-1).astype(np.float64) for array in bounds)])
    near = every[np.abs(every) < _FAR]
    least, most = np.floor(near), np.ceil(near)
    exact, beside = np.unique(near[least == most]), np.unique([*least, *least + 1, *most - 1])
    return exact.astype(np.int64), beside.astype(np.int64)


def _texts(known: Sequence[str], careful: bool) -> Array:
    """Return texts that a model knows, alone and in texts of several, and others."""
    sentences = [" ".join(known[start : start + _SENTENCE]) for start in range(0, len(known), _SENTENCE)]
    return np.array([*known, *sentences, *(() if careful else _OTHER_TEXTS)], object)


def _fitting(numbers: Sequence[int], array: Array) -> Array:
    """Return the numbers that an input can have."""
    info = np.iinfo(array.dtype)
    return np.array([number for number in numbers if info.min <= number <= info.max], array.dtype)


def _upright(numbers: Array, domain: _Domain) -> Array:
    """Return a number for each record in the rank of several records."""
    return numbers.reshape(-1, *[1] * domain.most.ndim)
