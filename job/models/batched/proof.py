"""Proof of the batch axes of a model: compute different records alone and together, and compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.batched.axes import Reading
from cluster_serving.job.models.batched.comparison import Comparison, Seen, Together
from cluster_serving.job.models.batched.records import KINDS, SIGNED, Record, generated, sizes
from cluster_serving.protocol.errors import InferenceFailed
from cluster_serving.protocol.inputs import Array

Compute = Callable[[Sequence[Array]], list[Array]]
"""Computes the model's own tensors, as `Model.predict`."""

Draw = Callable[[Reading], list[Record]]
"""Makes four records of a reading, of which the last is unlike the others."""

# Records of each call in which they are together. The last one differs from that before it in one record.
_TOGETHER = ((0, 1), (2, 0, 1), (2, 0, 3))

UNPROVEN = "no request has proven yet that records may share a call"
"""Problem of a model about which nothing is certain."""

_BUDGET_S = 1.0
"""Seconds after which no more is tried than needed."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Where a model has the batch.

    Attributes:
        reading: How its inputs are read.
        outputs: For each output, the axis of the batch; None if the whole output belongs to the call.
        squeezed: Indices of outputs that lose the axis in a batch of one.
        problem: Reason for computing one record a call; empty if records share calls.
        certain: Further records cannot change the problem.
        constants: The row of each output, where all records that were tried have the same. Then nothing tells them
            apart, and sharing a call is right for as long as this is so.
    """

    reading: Reading
    outputs: tuple[int | None, ...]
    squeezed: frozenset[int] = frozenset()
    problem: str = ""
    certain: bool = True
    constants: tuple[Array, ...] = ()


class _Trial:
    """A reading of the inputs that is being tried."""

    def __init__(self, compute: Compute, reading: Reading, tolerance: float) -> None:
        self.reading = reading
        self._compute = compute
        self._tolerance = tolerance
        self.seen: list[list[Seen]] = []
        self._differ: list[bool] = []
        self.shares = True
        """False if the model computes a record alone, and refuses several."""
        self.is_random = False
        """True if the same record has different outputs in each call."""

    def add(self, records: Sequence[Record]) -> bool:
        """Compute a draw; return False if the model refuses its records, which proves nothing."""
        try:
            alone = [self._alone(record) for record in records[:3]]
        except InferenceFailed:
            return False
        calls = self._calls(records)
        comparisons = [
            Comparison(
                [outputs[index] for outputs in alone],
                [Together(order, outputs[index]) for order, outputs in calls],
                self.reading.fixed,
                self._tolerance,
            )
            for index in range(len(alone[0]))
        ]
        found = [one.seen() if self.reading.is_batched else one.nowhere() for one in comparisons]
        self.seen.append(found)
        self._differ.append(any(not np.array_equal(*pair) for pair in zip(*records[:2], strict=True)))
        if any(one.agrees is False for one in found):
            again = zip(alone[0], self._alone(records[0]), strict=True)
            self.is_random |= not all(np.array_equal(*pair, equal_nan=pair[0].dtype.kind in "fc") for pair in again)
        return True

    def follows(self) -> bool:
        """Return True if all outputs follow the batch, and no draw has refuted it."""
        return self.shares and all(axis is not None for axis in self.axes()) and False not in self.agreements()

    def tells_all(self) -> bool:
        """Return True if something is proven or refuted about each output."""
        return None not in self.agreements()

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

    def constants(self) -> tuple[Array, ...]:
        """Return the row of each output, if all records that differ have the same; else nothing."""
        draws = [found for found, differ in zip(self.seen, self._differ, strict=True) if differ]
        if not draws or any(one.constant is None for found in draws for one in found):
            return ()
        rows = [one.constant for one in draws[0] if one.constant is not None]
        others = [one.constant for found in draws for one in found if one.constant is not None]
        same = (np.array_equal(rows[index % len(rows)], row) for index, row in enumerate(others))
        return tuple(rows) if all(same) else ()

    def is_constant(self) -> bool:
        """Return True if the sizes of the outputs depend neither on the batch nor on the data."""
        shapes = [{shape for one in row for shape in one.shapes} for row in zip(*self.seen, strict=True)]
        return all(len(known) == 1 and 0 not in next(iter(known)) for known in shapes)

    def _alone(self, record: Record) -> list[Array]:
        return self._compute(self.reading.join([record]))

    def _calls(self, records: Sequence[Record]) -> list[tuple[tuple[int, ...], list[Array]]]:
        """Compute records together; return the records of each call, by index, and its outputs."""
        fixed = self.reading.fixed
        if fixed == 1 or not self.reading.is_batched:
            return []
        orders: Sequence[tuple[int, ...]] = _TOGETHER
        if fixed is not None:
            first = [index % 3 for index in range(fixed)]
            orders = (tuple(first), (*first[1:], first[0]), tuple(3 if index == 1 else index for index in first))
        calls: list[tuple[tuple[int, ...], list[Array]]] = []
        for order in orders:
            try:
                calls.append((order, self._compute(self.reading.join([records[index] for index in order]))))
            except InferenceFailed:
                if 3 not in order:
                    self.shares = False
                    return []
        return calls


def prove(
    compute: Compute,
    options: Sequence[Reading],
    inputs: Sequence[TensorSpec],
    outputs: Callable[[], Sequence[TensorSpec]],
    tolerance: float,
    kinds: Sequence[str] = KINDS,
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
        if not reading.is_batched and not _may_be_whole(first, options[0], outputs()):
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
            if kind == SIGNED and made and trial.tells_all():
                continue
            # Sizes that follow the data are others with other kinds.
            if not made or has_time():
                made += trial.add(generated(trial.reading, inputs, size, kind))
        guesses += made > 0
        if guesses == 2 or (guesses and not has_time()):
            return


def _may_be_whole(trial: _Trial | None, likeliest: Reading, outputs: Sequence[TensorSpec]) -> bool:
    """Return True if a record may be whole tensors of the model, although these may have a batch."""
    if trial is None:
        # Records alone may be refused for their values; only a name can tell then.
        return not likeliest.is_batched or likeliest.is_sequence
    return _is_one_record(trial, outputs)


def _is_one_record(trial: _Trial, outputs: Sequence[TensorSpec]) -> bool:
    """Return True if what looks like a batch is a part of one record.

    Its name says so and its rows depend on each other, or outputs of known sizes do not follow it.
    """
    if trial.reading.fixed is not None or (trial.reading.is_sequence and False in trial.agreements()):
        return True
    free = any(spec.shape is not None and None in spec.shape for spec in outputs)
    return trial.shares and not free and trial.is_constant()


def _axes(trial: _Trial, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Axes:
    axes = trial.axes()
    if trial.reading.fixed == 1 and not any(None in place.record for place in trial.reading.places):
        # All inputs are of known sizes: an output of another size follows the data, and may be 1 by chance.
        axes = [None if spec.shape and spec.shape[0] != 1 else axis for axis, spec in zip(axes, outputs, strict=True)]
    problems = [*_problems(trial, axes, inputs, [spec.name for spec in outputs])]
    # An output that is always the same, beside one that is proven, has the same rows for all.
    unknown = not problems and True not in trial.agreements()
    constants = trial.constants() if unknown else ()
    if unknown and not constants:
        problems.append(UNPROVEN)
    return Axes(trial.reading, tuple(axes), trial.squeezed(), problems[0] if problems else "", not unknown, constants)


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
