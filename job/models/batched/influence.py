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
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from cluster_serving.job.models.batched.axes import Reading
from cluster_serving.job.models.batched.budget import Budget
from cluster_serving.job.models.batched.comparison import distance, equal
from cluster_serving.job.models.batched.domains import Domains
from cluster_serving.job.models.batched.growth import Growth, limit
from cluster_serving.job.models.batched.mixtures import Mixtures
from cluster_serving.job.models.batched.records import Record
from cluster_serving.job.models.batched.rounding import Rounding
from cluster_serving.job.models.batched.variety import bounded, kindred, varied
from cluster_serving.protocol.errors import InferenceFailed
from cluster_serving.protocol.inputs import Array

OTHER = "other"
"""Change of a record into another one, of the same draw."""

_NUMBERS = {"nan": np.nan, "infinite": np.inf, "-infinite": -np.inf, "large": 1e30, "-large": -1e30}
_LOUD = 1000

_MOST_BYTES = 64 << 20
_MOST_CALL_S = 0.25
"""Limits of a call of the largest size, which is smaller then."""

_FEW = 4
"""Number of sets of places whose records become each of `_NUMBERS`; one kind of change is tried with all sets."""

_BOTH = 2
"""Number of sets where values count, and not places: each record changes once."""

_VALUES = 256
"""Number of records of other values that are tried, in one call or more."""

_COMPARED = 8
"""Number of records of a call of many that are computed alone, too."""

_WATCHERS = 8
"""One of so many records stays where all others get other values."""

_MOST_ELEMENTS = 1 << 22
"""Numbers in all records of other values, which take more memory than those of one call."""


_MIXTURES_S = 0.12
_LEAST_MIXTURES = 256
"""Seconds and number of calls with mixtures of records; of one size where the model takes no other."""


class _Base(NamedTuple):
    """Records of a call, in turns, before some of them change; `others` are those that they become."""

    records: Sequence[Record]
    others: Sequence[Record]

    def at(self, place: int) -> Record:
        return self.records[place % len(self.records)]

    def become(self, taint: str) -> Sequence[Record]:
        """Return what the records become, in turns."""
        if taint == OTHER:
            return self.others
        return [[_tainted(array, _NUMBERS[taint]) for array in record] for record in self.records]


class _Step(NamedTuple):
    """A part of the search: calls of one size, in which `sets` of records become others in turns.

    Some records are computed alone, too, if it `is_compared`.
    """

    size: int
    base: _Base
    taints: Sequence[str] = ()
    sets: int = sys.maxsize
    is_compared: bool = True


class Influence:
    """A search for an output whose rows depend on the other records of a call, on its size, or on their place in it.

    Args:
        call: Computes records together; returns the outputs with the batch first.
        records: Four records that the model computes, and that differ; the last one is unlike the others.
        sizes: Sizes of calls, from the smallest to the largest.
        tolerance: See `Model.tolerance`.
        careful: A value beyond its range may end the process, or keep it in a loop: only values of `records` are tried.
        is_proven: The graph proves that rows do not depend on other records. Places and sizes alone are tried, as it
            tells nothing about kernels.
        known: See `Model.known`.
        bounds: See `Graph.bounds`.
        alone: The model's outputs for the first of the records, each computed alone, if they are known.
    """

    def __init__(
        self,
        call: Calls,
        records: Sequence[Record],
        sizes: Sequence[int],
        tolerance: float,
        careful: bool,
        is_proven: bool = False,
        known: Sequence[str | int] = (),
        bounds: Sequence[Array] = (),
        alone: Sequence[Sequence[Array]] = (),
    ) -> None:
        self._call = call
        self._known = known
        self._bounds = bounds
        self._tolerance = tolerance
        self._record_s = float("inf")
        self._most_rows = sys.maxsize
        self._limit = limit()
        first, second, third, _ = records
        self._records = records
        self._careful = careful
        self._has_numbers = any(array.dtype.kind in "fc" for array in first) and not careful
        self._usual = _Base((first, second, third), (second, records[3], first))
        self._sizes = sizes
        self._least, self._most = sizes[min(1, len(sizes) - 1)], sizes[-1]
        self._is_proven = is_proven
        self._most_others = _MOST_ELEMENTS // max(1, sum(array.size for array in first))
        # Of `records`: outputs of each alone, by its id, and of calls of the usual ones, by their size.
        self._alone_before = {
            id(record): [array[0, ...] for array in call.rows(outputs, 1)]
            for record, outputs in zip(records, alone, strict=False)
        }
        self._usual_before: dict[int, list[Array]] = {}
        self._roundings: dict[int, Rounding] = {}
        # What was tried, for mixtures.
        self._kinds: list[Sequence[Record]] = [records]

    def _plan(self) -> Iterator[_Step]:
        """Yield steps, the likeliest first, as time may end; what they take is made when it is their turn."""
        least, middle, most = self._sizes[0], self._least, self._most
        if self._is_proven:
            yield from (_Step(size, self._usual) for size in dict.fromkeys((middle, most, least)))
        else:
            yield from self._followed(least, middle, most)
        yield from (_Step(size, self._usual) for size in _between(middle, most))

    def _followed(self, least: int, middle: int, most: int) -> Iterator[_Step]:
        """Yield steps that follow values."""
        first, second, third, _ = self._records
        some = "nan" if self._has_numbers else OTHER
        same = _Base((first,), (second,))
        yield _Step(middle, self._usual, (some,))
        yield _Step(middle, same, (OTHER,))
        loud = [[_loud(array, seed) for seed, array in enumerate(record)] for record in (first, second, third)]
        tainted = _Base(loud, loud[::-1])
        if self._has_numbers:
            yield _Step(middle, tainted, ("nan",))
        if most > middle:
            yield _Step(most, self._usual, (some,))
            # NaN shows a dependence of each pair of places; without numbers, other records have to show it.
            yield _Step(most, same, (OTHER,), _FEW if self._has_numbers else sys.maxsize)
            many = varied(self._records, max(most, min(_VALUES, self._most_others)), self._careful)
            self._kinds.append(many)
            for start in range(0, len(many), most):
                yield from self._exchanged(many[start : start + most])
            if self._has_numbers and self._bounds:
                yield from self._between_bounds(most)
        yield from self._of_kinds(middle, most)
        if self._has_numbers:
            yield _Step(middle, self._usual, (*_NUMBERS, OTHER))
            if most > middle:
                yield _Step(most, tainted, ("nan",), _FEW)
                yield _Step(most, self._usual, ("large", "-large", OTHER), _FEW)
        if least < middle:
            yield _Step(least, self._usual, (some,))

    def _of_kinds(self, middle: int, most: int) -> Iterator[_Step]:
        """Yield steps with records of one kind: a call of each kind alone, and one of all, beside their like."""
        count = max(middle, _COMPARED, min(most, self._most_others) // _COMPARED)
        groups = kindred(self._records, count, self._careful)
        self._kinds += groups
        for group in groups:
            yield _Step(middle, _Base(group[:middle], self._usual.records), (OTHER,), _BOTH, is_compared=False)
        if most > middle:
            each = max(2, most // len(groups))
            together = [record for group in groups for record in (group * each)[:each]]
            for start in range(0, len(together), most):
                part = together[start : start + most]
                yield _Step(most, _Base(part, self._usual.records), (OTHER,), _BOTH)

    def _between_bounds(self, most: int) -> Iterator[_Step]:
        """Yield steps with records that several comparisons of the model take for valid ones, or for others."""
        count = min(max(most, _VALUES), self._most_others)
        many = bounded(self._records[0], self._bounds, count)
        self._kinds.append(many)
        for start in range(0, count - most + 1, most):
            yield _Step(most, _Base(many[start : start + most], many[::-1]), (OTHER,), _BOTH)

    def _exchanged(self, many: Sequence[Record]) -> list[_Step]:
        """Return steps in which records become these ones: usual ones, and some of these.

        Where most records have what others depend on, one more changes nothing.
        """
        bases = (_Base(own, many) for own in (self._usual.records, many[::-1]))
        return [_Step(self._most, base, (OTHER,), _BOTH) for base in bases]

    def find(self, has_time: Callable[[], bool]) -> int | None:
        """Return the index of the first output that is found; None if there is none, or the time is over.

        The first step of the search is always done.
        """
        for index, step in enumerate(self._plan()):
            if index and not has_time():
                return None
            with suppress(InferenceFailed):
                found = self._try(step, has_time)
                if found is not None:
                    return found
        if self._is_proven:
            return None
        found = self._find_in_domains(has_time)
        return self._find_in_mixtures(has_time) if found is None else found

    def _find_in_mixtures(self, has_time: Callable[[], bool]) -> int | None:
        """Search in calls of all sizes, with records of all kinds."""
        budget = Budget(_MIXTURES_S)
        most = self._allowed(self._most)
        if most == self._sizes[0]:
            sizes = [most] * _LEAST_MIXTURES
        else:
            sizes = [*range(2, most + 1)] * max(1, _LEAST_MIXTURES // most)
        for mixture in Mixtures(self._kinds, self._careful).of(sizes):
            if not (has_time() and budget.has_time()):
                return None
            with suppress(InferenceFailed):
                before = self._call.stacked(mixture.rows)
                found = self._resized(before) if mixture.has_usual else None
                if found is None:
                    after = self._call.stacked(mixture.changed)
                    found = _differing(before, after, mixture.kept, partial(self._call.stacked, mixture.rows))
                if found is not None:
                    return found
        return None

    def _find_in_domains(self, has_time: Callable[[], bool]) -> int | None:
        """Search with all values that the model knows, and all whole numbers that it takes."""
        if self._most == self._least:
            return None
        texts = [one for one in self._known if isinstance(one, str)]
        for known in [self._known] if len(texts) == len(self._known) else [self._known, texts]:
            domains = Domains(self._alone, self._records[0], known, self._careful, has_time, self._bounds)
            found = self._find_in(domains, has_time) if domains.is_any else None
            if found is not None:
                return found
        return None

    def _find_in(self, domains: Domains, has_time: Callable[[], bool]) -> int | None:
        with suppress(InferenceFailed):
            for many in domains.groups(self._most):
                self._kinds.append(many)
                alone = _Step(self._most, _Base(many, self._usual.records), (OTHER,), _BOTH)
                for step in (*self._exchanged(many), alone):
                    if not has_time():
                        return None
                    found = self._try(step, has_time)
                    if found is not None:
                        return found
        with suppress(InferenceFailed):
            size = self._allowed(self._most)
            records = [self._usual.at(place) for place in range(size)]
            before = self._measured(self._usual, size)
            watchers = min(_WATCHERS, size)
            for number, many in enumerate(domains.parts(size - size // watchers)):
                if not has_time():
                    return None
                places = [at for at in range(size) if at % watchers != number % watchers]
                changed = [*records]
                for at, record in zip(places, many, strict=False):
                    changed[at] = record
                found = self._moved(records, before, changed, frozenset(places))
                if found is not None:
                    return found
        return None

    def _resized(self, together: Sequence[Array]) -> int | None:
        """Return the index of an output whose row of the first record differs from its row alone."""
        own = self._rounding(self._records[0], *map(self._alone, self._records[:2]))
        return next((at for at, array in enumerate(together) if not own.explains(at, array[:1])), None)

    def _rounding(self, record: Record, own: Sequence[Array], other: Sequence[Array]) -> Rounding:
        """Return the rounding of a record, one for all calls if it is a usual one."""
        known = self._roundings.get(id(record))
        if known is None:
            known = Rounding(self._alone, record, own, other, self._tolerance)
            if any(record is own for own in self._records):
                self._roundings[id(record)] = known
        return known

    def _allowed(self, size: int) -> int:
        """Return a size that takes neither too long nor too much memory."""
        most = min(_MOST_CALL_S / self._record_s, self._most_rows, size)
        return min(size, max(self._least, int(most)))

    def _try(self, step: _Step, has_time: Callable[[], bool]) -> int | None:
        base, size = step.base, self._allowed(step.size)
        records = [base.at(place) for place in range(size)]
        is_known = base.records is self._usual.records and size in self._usual_before
        before = self._measured(base, size)
        found = self._misplaced(base, before) if step.is_compared and not is_known else None
        if found is not None:
            return found
        for taint in step.taints:
            # A model may refuse what is no number, which tells nothing.
            with suppress(InferenceFailed):
                others = base.become(taint)
                most = step.sets if taint == step.taints[0] else _FEW
                for number, places in enumerate(apart(size) if most > _FEW else islice(some_apart(size), most)):
                    if number > 1 and not has_time():
                        return None
                    changed = [others[at % len(others)] if at in places else records[at] for at in range(size)]
                    found = self._moved(records, before, changed, places)
                    if found is not None:
                        return found
        return None

    def _measured(self, base: _Base, size: int) -> list[Array]:
        """Compute a call, and note how long it takes, and how much memory; once for the usual records."""
        is_usual = base.records is self._usual.records
        if is_usual and size in self._usual_before:
            return self._usual_before[size]
        records = [base.at(place) for place in range(size)]
        began = time.monotonic()
        with Growth() as growth:
            outputs = self._call(records)
        self._record_s = min(self._record_s, max(time.monotonic() - began, 1e-9) / size)
        each = max(1, sum(array.nbytes for array in outputs) // size + sum(array.nbytes for array in records[0]))
        self._most_rows = min(self._most_rows, _MOST_BYTES // each, self._limit * size // max(1, growth.bytes))
        if is_usual:
            self._usual_before[size] = outputs
        return outputs

    def _moved(
        self, records: Sequence[Record], before: Sequence[Array], changed: Sequence[Record], places: frozenset[int]
    ) -> int | None:
        """Return the index of an output with a row that changes with records at other places."""
        rest = [place for place in range(len(records)) if place not in places]
        return _differing(before, self._call(changed), rest, lambda: self._call(records))

    def _misplaced(self, base: _Base, together: Sequence[Array]) -> int | None:
        """Return the index of an output with a row that differs from the row of its record alone."""
        count = min(len(base.records), len(together[0]))
        chosen = range(count) if count <= _COMPARED else range(0, count, -(-count // _COMPARED))
        alone = {at: self._alone(base.records[at]) for at in chosen}
        for at, own in alone.items():
            other = alone[chosen[chosen.index(at) - 1]] if len(alone) > 1 else self._alone(base.others[0])
            rounding = self._rounding(base.records[at], own, other)
            for index, array in enumerate(together):
                rows = array[at :: len(base.records)]
                if not (rounding.explains(index, rows) and rounding.explains_places(index, rows)):
                    return index
        return None

    def _alone(self, record: Record) -> list[Array]:
        if id(record) in self._alone_before:
            return self._alone_before[id(record)]
        found = [array[0, ...] for array in self._call([record])]
        if any(record is own for own in self._records):
            self._alone_before[id(record)] = found
        return found


class Calls:
    """Calls of a model with its batch at these axes, whose outputs have it first."""

    def __init__(
        self,
        compute: Callable[[Sequence[Array]], list[Array]],
        reading: Reading,
        axes: Sequence[int],
        squeezed: frozenset[int],
    ) -> None:
        self._compute = compute
        self._reading = reading
        self._axes = axes
        self._squeezed = squeezed

    def __call__(self, records: Sequence[Record]) -> list[Array]:
        """Compute records together."""
        return self.rows(self._compute(self._reading.join(records)), len(records))

    def stacked(self, rows: Sequence[Array]) -> list[Array]:
        """Compute records that are stacked: one array of each input."""
        return self.rows(self._compute(self._reading.placed(rows)), len(rows[0]))

    def rows(self, outputs: Sequence[Array], count: int) -> list[Array]:
        """Return the rows of a call with so many records, with the batch first."""
        rows = []
        for index, (axis, array) in enumerate(zip(self._axes, outputs, strict=True)):
            if index in self._squeezed and count == 1:
                rows.append(array[np.newaxis])
            elif array.ndim <= axis or array.shape[axis] < count:
                raise InferenceFailed("an output does not follow the batch")
            else:
                rows.append(np.moveaxis(array, axis, 0)[:count])
        return rows


def apart(count: int) -> Iterator[frozenset[int]]:
    """Yield sets of places of a call, such that for each pair of places one set has the first and not the second."""
    every = frozenset(range(count))
    for bit in range((count - 1).bit_length()):
        ones = frozenset(place for place in every if place >> bit & 1)
        yield ones
        yield every - ones


def some_apart(count: int) -> Iterator[frozenset[int]]:
    """Yield four sets of places of a call: each second one, the rest, and any half and the rest.

    For each distance of two places, and for most pairs of them, one set has the first and not the second.
    """
    drawn = np.random.default_rng(0).permutation(count)
    for first in (range(1, count, 2), drawn[: count // 2].tolist()):
        places = frozenset(first)
        yield places
        yield frozenset(range(count)) - places


def _between(least: int, most: int) -> list[int]:
    """Return sizes between two others: kernels have blocks of powers of two, and something else for the rest."""
    powers = [1 << bits for bits in range(2, max(2, most.bit_length()))]
    near = {size for power in powers for size in (power - 1, power, power + 1, power + power // 2)}
    return sorted(size for size in near if least < size < most)


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


def _differing(
    before: Sequence[Array], after: Sequence[Array], rest: Sequence[int], again: Callable[[], list[Array]]
) -> int | None:
    """Return the index of an output that has another row at one of the places after the change.

    `again` computes the call before it once more.
    """
    moved = [index for index, pair in enumerate(zip(before, after, strict=True)) if not _same(*pair, rest)]
    if not moved:
        return None
    # Threads may add in any order, from call to call.
    repeated = again()
    for index in moved:
        own, once_more, other = (array[rest] for array in (before[index], repeated[index], after[index]))
        if equal((own, once_more)) or distance(own, other) > 10 * distance(own, once_more):
            return index
    return None


def _same(one: Array, other: Array, places: Sequence[int]) -> bool:
    return one.shape == other.shape and equal((one[places], other[places]))
