"""Proof of the batch axes of a model: compute different records alone and together, and compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.batched.axes import Reading, take
from cluster_serving.job.models.batched.records import NORMAL, WIDE, ZEROS, Record, generated, sizes
from cluster_serving.protocol.errors import InferenceFailed
from cluster_serving.protocol.inputs import Array

Compute = Callable[[Sequence[Array]], list[Array]]
"""Computes the model's own tensors, as `Model.predict`."""

Draw = Callable[[Reading], list[Record]]
"""Makes three records of a reading."""

_TOGETHER = ((0, 1), (2, 0, 1))
"""Records of each call in which they are together."""

_BUDGET_S = 1.0
"""Seconds after which no more is tried than needed."""

_NOISE = 2e-5
"""Largest difference, relative to the largest output, that rounding in float32 explains."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Where a model has the batch.

    Attributes:
        reading: How its inputs are read.
        outputs: For each output, the axis of the batch; None if the whole output belongs to the call.
        squeezed: Indices of outputs that lose the axis in a batch of one.
        problem: Reason for computing one record a call; empty if records share calls.
        certain: Further records cannot change the problem.
    """

    reading: Reading
    outputs: tuple[int | None, ...]
    squeezed: frozenset[int] = frozenset()
    problem: str = ""
    certain: bool = True


class _Seen(NamedTuple):
    """Findings about one output, from one draw.

    `axis` is None if the output does not follow the batch. `agrees` is None if the records' outputs do not differ.
    """

    axis: int | None
    squeezed: bool
    agrees: bool | None
    shapes: frozenset[tuple[int, ...]]
    is_float: bool


class _Trial:
    """A reading of the inputs that is being tried."""

    def __init__(self, compute: Compute, reading: Reading, tolerance: float) -> None:
        self.reading = reading
        self._compute = compute
        self._tolerance = tolerance
        self.seen: list[list[_Seen]] = []
        self.shares = True
        """False if the model computes a record alone, and refuses several."""
        self.is_random = False
        """True if the same record has different outputs in each call."""

    def add(self, records: Sequence[Record]) -> bool:
        """Compute a draw; return False if the model refuses its records, which proves nothing."""
        try:
            alone = [self._alone(record) for record in records]
        except InferenceFailed:
            return False
        together = self._together(records)
        self.seen.append(
            [
                self._follow([outputs[index] for outputs in alone], [(order, row[index]) for order, row in together])
                for index in range(len(alone[0]))
            ]
        )
        if any(one.agrees is False for one in self.seen[-1]):
            pairs = zip(alone[0], self._alone(records[0]), strict=True)
            self.is_random = self.is_random or not all(
                np.array_equal(*pair, equal_nan=pair[0].dtype.kind in "fc") for pair in pairs
            )
        return True

    def follows(self) -> bool:
        """Return True if all outputs follow the batch, and no draw has refuted it."""
        return self.shares and all(axis is not None for axis in self.axes()) and False not in self.agreements()

    def axes(self) -> list[int | None]:
        """Return the axis of each output, which all draws have in common."""
        found = [{(one.axis, one.squeezed) for one in row} for row in zip(*self.seen, strict=True)]
        return [next(iter(axes))[0] if len(axes) == 1 else None for axes in found]

    def squeezed(self) -> frozenset[int]:
        """Return the indices of the outputs that lose the axis in a batch of one."""
        return frozenset(index for index, row in enumerate(zip(*self.seen, strict=True)) if row[0].squeezed)

    def agreements(self) -> list[bool | None]:
        """Return for each output: True if draws prove it, False if one refutes it, None if none tells."""
        found = []
        for row in zip(*self.seen, strict=True):
            told = [one.agrees for one in row if one.agrees is not None]
            # Rounding may decide between labels that are nearly equal.
            allowed = 0 if row[0].is_float else (len(told) - 1) // 2
            found.append(told.count(False) <= allowed if told else None)
        return found

    def is_constant(self) -> bool:
        """Return True if the sizes of the outputs depend neither on the batch nor on the data."""
        shapes = [{shape for one in row for shape in one.shapes} for row in zip(*self.seen, strict=True)]
        return all(len(known) == 1 and 0 not in next(iter(known)) for known in shapes)

    def _alone(self, record: Record) -> list[Array]:
        return self._compute(self.reading.join([record]))

    def _together(self, records: Sequence[Record]) -> list[tuple[Sequence[int], list[Array]]]:
        fixed = self.reading.fixed
        if fixed == 1 or not self.reading.is_batched:
            return []
        orders: Iterable[Sequence[int]] = _TOGETHER
        if fixed is not None:
            orders = [[(index + start) % 3 for index in range(fixed)] for start in (0, 2)]
        try:
            return [(order, self._compute(self.reading.join([records[index] for index in order]))) for order in orders]
        except InferenceFailed:
            self.shares = False
            return []

    def _follow(self, alone: Sequence[Array], together: Sequence[tuple[Sequence[int], Array]]) -> _Seen:
        shapes = frozenset(array.shape for array in (*alone, *(array for _, array in together)))
        seen = partial(_Seen, shapes=shapes, is_float=alone[0].dtype.kind in "fc")
        nowhere = seen(None, False, None)
        if len({array.shape for array in alone}) > 1 or not self.reading.is_batched:
            return nowhere
        shape = alone[0].shape
        fixed = self.reading.fixed if together else 1
        agrees = partial(self._agrees, alone, together)
        if fixed is not None:
            axes = [axis for axis, size in enumerate(shape) if size == fixed and (fixed > 1 or axis == 0)]
            found = [seen(axis, False, agrees(axis, False)) for axis in axes]
            return next((one for one in found if one.agrees is not False), found[0] if found else nowhere)
        for squeezed in (False, True):
            for axis in range(len(shape) + squeezed):
                # The sizes without the batch.
                others = shape if squeezed else (*shape[:axis], *shape[axis + 1 :])
                if (squeezed or shape[axis] == 1) and all(
                    array.shape == (*others[:axis], len(order), *others[axis:]) for order, array in together
                ):
                    return seen(axis, squeezed, agrees(axis, squeezed))
        return nowhere

    def _agrees(
        self, alone: Sequence[Array], together: Sequence[tuple[Sequence[int], Array]], axis: int, squeezed: bool
    ) -> bool | None:
        own = [array if squeezed else take(array, 0, axis) for array in alone]
        pairs = [
            (own[record], take(array, position, axis))
            for order, array in together
            for position, record in enumerate(order)
        ]
        if own[0].dtype.kind not in "fc":
            same = all(np.array_equal(one, other) for one, other in pairs)
            differ = any(not np.array_equal(own[0], other) for other in own[1:])
            return same if differ or not same else None
        largest = max(map(_largest, own))
        # Infinite if the records differ in which numbers are finite.
        spread = max(_distance(own[0], other) for other in own[1:])
        error = max((_distance(one, other) for one, other in pairs), default=0.0)
        allowed = self._tolerance * spread if np.isfinite(spread) else 0.0
        if error > max(allowed, _NOISE * largest, self._tolerance / 50 * largest):
            return False
        return True if spread > 3 * _NOISE * largest else None


def prove(
    compute: Compute,
    options: Sequence[Reading],
    inputs: Sequence[TensorSpec],
    outputs: Callable[[], Sequence[TensorSpec]],
    tolerance: float,
    kinds: Sequence[str] = (NORMAL, ZEROS, WIDE),
    draws: Sequence[Draw] = (),
) -> Axes | None:
    """Find the batch axes of a model.

    Args:
        compute: See `Compute`.
        options: Ways to read the inputs, the likeliest first.
        inputs: Inputs of the model.
        outputs: Returns the outputs of the model, once it has computed.
        tolerance: Largest relative difference between answers that rounding explains.
        kinds: Kinds of random records, which are tried with two guesses of free sizes.
        draws: Records to try instead.

    Returns:
        The axes; None if the model computes none of the records.
    """
    began = time.monotonic()
    first: _Trial | None = None
    for reading in options:
        if first is not None and not reading.is_batched and not _is_one_record(first, outputs()):
            continue
        trial = _Trial(compute, reading, tolerance)
        if draws:
            for draw in draws:
                trial.add(draw(reading))
        else:
            _try_random(trial, inputs, kinds, lambda: time.monotonic() - began < _BUDGET_S)
        if trial.seen:
            if trial.follows() or reading.fixed == 1 or not reading.is_batched:
                return _axes(trial, inputs, outputs())
            first = first or trial
    return None if first is None else _axes(first, inputs, outputs())


def _try_random(
    trial: _Trial, inputs: Sequence[TensorSpec], kinds: Sequence[str], has_time: Callable[[], bool]
) -> None:
    guesses = 0
    for size in sizes(trial.reading):
        made = 0
        for kind in kinds:
            # Sizes that follow the data are others with zeros.
            if not made or has_time():
                made += trial.add(generated(trial.reading, inputs, size, kind))
        guesses += made > 0
        if guesses == 2 or (guesses and not has_time()):
            return


def _is_one_record(trial: _Trial, outputs: Sequence[TensorSpec]) -> bool:
    """Return True if what looks like a batch is a part of one record: outputs of known sizes do not follow it."""
    if trial.reading.fixed is not None:
        return True
    free = any(spec.shape is not None and None in spec.shape for spec in outputs)
    return trial.shares and not free and trial.is_constant()


def _axes(trial: _Trial, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Axes:
    axes = trial.axes()
    if trial.reading.fixed == 1 and not any(None in place.record for place in trial.reading.places):
        # All inputs are of known sizes: an output of another size follows the data, and may be 1 by chance.
        axes = [None if spec.shape and spec.shape[0] != 1 else axis for axis, spec in zip(axes, outputs, strict=True)]
    problems = [*_problems(trial, axes, inputs, [spec.name for spec in outputs])]
    unknown = not problems and None in trial.agreements()
    if unknown:
        problems.append("no request has proven yet that records may share a call")
    return Axes(trial.reading, tuple(axes), trial.squeezed(), problems[0] if problems else "", not unknown)


def _problems(
    trial: _Trial, axes: Sequence[int | None], inputs: Sequence[TensorSpec], names: Sequence[str]
) -> Iterator[str]:
    """Yield the reasons for which records cannot share a call."""
    reading = trial.reading
    if not reading.is_batched:
        yield "its inputs have no batch dimension"
    for place, spec in zip(reading.places, inputs, strict=True):
        if place.axis is None:
            yield f"input {spec.name!r} has no batch dimension"
    if reading.fixed == 1:
        yield "its batch has a fixed size of 1"
    elif not trial.shares:
        yield "it refuses several records in a call"
    if trial.is_random:
        yield "its outputs differ from call to call"
    for axis, name, agrees in zip(axes, names, trial.agreements(), strict=True):
        if axis is None:
            yield f"output {name!r} does not follow the batch"
        elif agrees is False:
            yield f"output {name!r} of a record depends on the others in its batch"


def without(axes: Axes, index: int, name: str) -> Axes:
    """Return the axes of a model one of whose outputs was seen not to follow the batch."""
    outputs = tuple(None if at == index else axis for at, axis in enumerate(axes.outputs))
    problem = f"output {name!r} does not follow the batch"
    return replace(axes, outputs=outputs, squeezed=axes.squeezed - {index}, problem=axes.problem or problem)


def _largest(array: Array) -> float:
    finite = np.abs(array[np.isfinite(array)])
    return float(finite.max()) if finite.size else 0.0


def _distance(one: Array, other: Array) -> float:
    """Return the largest difference; infinite if values that are no numbers differ."""
    if one.shape != other.shape:
        return float("inf")
    known, also = np.isfinite(one), np.isfinite(other)
    if not np.array_equal(known, also) or not np.array_equal(one[~known], other[~also], equal_nan=True):
        return float("inf")
    return float(np.abs(one[known].astype(complex if one.dtype.kind == "c" else float) - other[known]).max(initial=0))
