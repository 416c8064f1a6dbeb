"""Calls of any size and any mixture of records: some rules ask for several things at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cluster_serving.job.models.batched.records import Record
from cluster_serving.protocol.inputs import Array

_SPECIAL = np.array([-1, -999, -9999, 999, 9999, 0, -99, 99, 1, -1])
"""Numbers that often stand for missing ones."""

_PART = 0.25
"""Part of the numbers of a record that are missing."""

_BROAD = 0.3
"""Part of the records that are of the kind with the most values."""

_MOST_BITS = 14
_OCTAVES = 24
_NEAR = 1e-3
_POOL = 64
"""Records of each kind that is made here."""

Rows = list[Array]
"""Records, stacked, of each input."""


class Mixture(NamedTuple):
    """A call, and the same one with other records at all places that are not `kept`.

    The first one is the first usual record, and stays, if it `has_usual`.
    """

    rows: Rows
    changed: Rows
    kept: list[int]
    has_usual: bool


class Mixtures:
    """Mixtures of records of several kinds.

    Args:
        kinds: Records of each kind; the first kind is the usual one, and the second one has the most values.
        careful: Numbers with a fraction stay between those of the records.
    """

    def __init__(self, kinds: Sequence[Sequence[Record]], careful: bool) -> None:
        self._generator = np.random.default_rng(0)
        self._is_free = not careful and any(map(_has_digits, kinds[0][0]))
        self._kinds = [_stacked(kind) for kind in kinds]
        if self._is_free:
            self._kinds += [self._incomplete(), self._special(), self._codes(), self._sparse()]

    def of(self, sizes: Sequence[int]) -> Iterator[Mixture]:
        """Yield a mixture of several kinds for each size, in any order, and some whose records are alike."""
        for size in self._generator.permutation(sizes):
            mixture = self._drawn(int(size))
            yield mixture
            while not mixture.has_usual:
                mixture = self._drawn(int(size))
                yield mixture

    def _drawn(self, size: int) -> Mixture:
        kept, is_alike = self._kept(size), self._happens(0.3)
        own, before, after = self._made(size, is_alike)
        for array, *others in zip(own, before, after, strict=True):
            for other in others:
                other[kept] = array[kept]
        if is_alike:
            return Mixture(before, after, kept.tolist(), False)
        for rows in (before, after):
            for array, usual in zip(rows, self._kinds[0], strict=True):
                array[0] = usual[0]
        return Mixture(before, after, sorted({0, *kept.tolist()}), True)

    def _made(self, size: int, is_alike: bool) -> tuple[Rows, Rows, Rows]:
        """Return records that stay, others before they change, and those that they become."""
        own, other, new = (self._taken(self._any_kind(), size) for _ in range(3))
        if is_alike:
            other = self._taken(own, size)
        elif self._happens(0.5):
            other = self._taken(self._kinds[0], size)
        if self._happens(0.25):
            new = self._taken(own, size)
            if self._happens(0.5):
                new = [self._near(array) for array in new]
        if is_alike and self._is_free and self._happens(0.5):
            scale = 2.0 ** self._generator.uniform(-_OCTAVES, _OCTAVES)
            own, other = [_scaled(array, scale) for array in own], [_scaled(array, scale) for array in other]
        return own, other, new

    def _kept(self, size: int) -> Array:
        """Return places that stay: each second one, a half, or a few."""
        if self._happens(0.4):
            return np.arange(int(self._generator.integers(2)), size, 2)
        return self._generator.permutation(size)[: max(1, size // (2 if self._happens(0.5) else 8))]

    def _happens(self, part: float) -> bool:
        return bool(self._generator.random() < part)

    def _any_kind(self) -> Rows:
        last = len(self._kinds) - 1
        return self._kinds[min(1, last) if self._happens(_BROAD) else int(self._generator.integers(last + 1))]

    def _taken(self, rows: Rows, count: int) -> Rows:
        chosen = self._generator.integers(0, len(rows[0]), count)
        return [array[chosen] for array in rows]

    def _incomplete(self) -> Rows:
        return [self._mixed(array, np.nan) for array in self._taken(self._kinds[0], _POOL)]

    def _special(self) -> Rows:
        rows = self._taken(self._kinds[0], _POOL)
        numbers = np.resize(_SPECIAL, _POOL)
        return [self._mixed(array, numbers.reshape(-1, *[1] * (array.ndim - 1))) for array in rows]

    def _sparse(self) -> Rows:
        return [self._mixed(self._mixed(array, 0), 0) for array in self._taken(self._kinds[0], _POOL)]

    def _mixed(self, array: Array, numbers: Array | float) -> Array:
        if not _has_digits(array):
            return array
        return np.where(self._generator.random(array.shape) < _PART, numbers, array).astype(array.dtype)

    def _codes(self) -> Rows:
        """Return whole numbers, as codes of categories."""
        return [self._coded(array) for array in self._taken(self._kinds[0], _POOL)]

    def _coded(self, array: Array) -> Array:
        if not _has_digits(array):
            return array
        largest = 2 ** self._generator.integers(1, _MOST_BITS, array.shape)
        return np.asarray(self._generator.integers(0, largest), array.dtype)

    def _near(self, array: Array) -> Array:
        if not self._is_free or not _has_digits(array):
            return array
        return np.asarray(array * (1 + _NEAR * self._generator.uniform(-1, 1, array.shape)), array.dtype)


def _stacked(records: Sequence[Record]) -> Rows:
    return [np.stack(arrays) for arrays in zip(*records, strict=True)]


def _scaled(array: Array, scale: float) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(array * scale, array.dtype) if _has_digits(array) else array


def _has_digits(array: Array) -> bool:
    return array.dtype.kind in "fc"
