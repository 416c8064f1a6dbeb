"""Sizes of axes that are known as numbers, or as products of numbers and symbols."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import count
from typing import NamedTuple

_BATCH = 0
_symbols = count(1)


class Size(NamedTuple):
    """A whole number times symbols; a symbol stands for a size that is the same for all records of a call.

    Attributes:
        number: The number.
        symbols: The symbols, in order; one is the number of records.
    """

    number: int
    symbols: tuple[int, ...] = ()

    @property
    def has_batch(self) -> bool:
        """True if the size is a multiple of the number of records."""
        return _BATCH in self.symbols

    @property
    def is_number(self) -> bool:
        """True if the size has no symbol."""
        return not self.symbols

    def times(self, other: Size) -> Size:
        """Return the product."""
        return Size(self.number * other.number, tuple(sorted(self.symbols + other.symbols)))

    def over(self, other: Size) -> Size | None:
        """Return the quotient if it is such a size, whatever its symbols are; else None."""
        rest = [*self.symbols]
        for symbol in other.symbols:
            if symbol not in rest:
                return None
            rest.remove(symbol)
        if not other.number or self.number % other.number:
            return None
        return Size(self.number // other.number, tuple(rest))


ONE = Size(1)
BATCH = Size(1, (_BATCH,))
"""Number of records of a call."""


def unknown_size() -> Size:
    """Return a size of which only this is known: it is the same for all records, in calls of any size."""
    return Size(1, (next(_symbols),))


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes."""
    return reduce(Size.times, sizes, ONE)
