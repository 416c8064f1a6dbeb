"""Comparison of a record's answer in a shared call with its answer alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from cluster_serving.job.models.base import ROUGH
from cluster_serving.job.models.batched.comparison import alike
from cluster_serving.job.models.batched.sample import Sample
from cluster_serving.protocol.inputs import Array

SAME, ROUNDING, DOUBTFUL, DIFFERS = VERDICTS = ("same", "rounding", "doubtful", "differs")
"""What comes of a comparison, the worst one last. `DOUBTFUL`: nothing tells a dependence from rounding."""

_CLOSE = 0.1
"""Part of `Model.tolerance` by which numbers differ that need no further look, relative to those of other records."""

_LAST_DIGITS = 1e-6
_LAST_DIGITS_OF_16_BITS = ROUGH / 8
_TRIES = 8
_PART = 0.25
"""Part of a difference that a change in the last digits has to make."""


class Computer(Protocol):
    """A model that computes records in both ways; see `BatchedModel`."""

    def alone(self, inputs: Sequence[Array]) -> list[Array]:
        """Compute a batch of one."""

    def together(self, inputs: Sequence[Array]) -> list[Array]:
        """Compute a batch in a shared call."""


def judge(sample: Sample, model: Computer, tolerance: float) -> list[str]:
    """Compute a record again alone; return a verdict on each output.

    A difference is examined with a call of the same size that has this record in all places. If the record gets
    something else there than in the shared call, its answer depends on the other records, however little: kernels do
    not change for a call of the same size. Otherwise the size of the call makes the difference. Rounding explains one
    within the tolerance, or one that a change in the last digits of the inputs makes, too.

    Args:
        sample: The record.
        model: Computes it.
        tolerance: See `Model.tolerance`.
    """
    examination = _Examination(sample, model, tolerance)
    return [examination.verdict(index) for index in range(len(sample.outputs))]


def worst(verdicts: Sequence[str]) -> int:
    """Return the index of the output with the worst verdict."""
    return max(range(len(verdicts)), key=lambda index: VERDICTS.index(verdicts[index]))


class _Examination:
    """What was computed of a sample; nothing is before it is needed."""

    def __init__(self, sample: Sample, model: Computer, tolerance: float) -> None:
        self._sample = sample
        self._model = model
        self._tolerance = tolerance
        self._alone = model.alone(sample.inputs)

    def verdict(self, index: int) -> str:
        """Return the verdict on an output."""
        sample, tolerance = self._sample, self._tolerance
        alone, shared, others = self._alone[index], sample.outputs[index], sample.others[index]

        def are_close(one: Array, other: Array) -> bool:
            return _distance(one, other, others) <= _CLOSE * tolerance

        if are_close(alone, shared):
            return SAME
        copies = self._copies[index]
        is_rounding = _agree(alone, shared, others, tolerance)
        if not are_close(copies, shared):
            if are_close(copies, self._again[index]):
                return DIFFERS
            # The same call has another result each time: atomic additions of a GPU, say.
            return ROUNDING if is_rounding else DOUBTFUL
        if is_rounding:
            return ROUNDING
        if self._reach is None:
            return DOUBTFUL
        return ROUNDING if self._reach[index] >= _PART * _distance(alone, shared, others) else DIFFERS

    @cached_property
    def _copies(self) -> list[Array]:
        return self._repeated()

    @cached_property
    def _again(self) -> list[Array]:
        return self._repeated()

    def _repeated(self) -> list[Array]:
        place = self._sample.place
        return [array[place : place + 1] for array in self._model.together(self._sample.copies)]

    @cached_property
    def _reach(self) -> list[float] | None:
        """Difference that the last digits of the inputs make to each output; None if the inputs have none."""
        inputs = self._sample.inputs
        if not any(map(_has_last_digit, inputs)):
            return None
        generator = np.random.default_rng(0)
        reach = [0.0] * len(self._alone)
        for _ in range(_TRIES):
            outputs = self._model.alone([_changed(generator, array, self._tolerance) for array in inputs])
            moved = [_distance(*each) for each in zip(self._alone, outputs, self._sample.others, strict=True)]
            reach = [*map(max, reach, moved)]
        return reach


def _agree(one: Array, other: Array, others: Array, tolerance: float) -> bool:
    # A record may have small numbers only, as sums of larger ones.
    return one.shape == other.shape and alike(np.append(one, others), np.append(other, others), tolerance)


def _distance(one: Array, other: Array, others: Array) -> float:
    """Return the largest difference, relative to the numbers of all records in that place.

    Of whole numbers and texts, it is the part that is not equal.
    """
    if one.shape != other.shape:
        return float("inf")
    if one.dtype.kind not in "fc":
        return float(np.mean(one != other)) if one.size else 0.0
    wide = complex if one.dtype.kind == "c" else float
    one, other, others = one.astype(wide), other.astype(wide), others.astype(wide)
    with np.errstate(all="ignore"):
        differences = np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0, np.abs(one - other))
        sizes = [np.abs(np.where(np.isfinite(array), array, 0)) for array in (one, other, others)]
        largest = np.concatenate(sizes).max(axis=0) if others.shape[1:] == one.shape[1:] else np.maximum(*sizes[:2])
        # What is not equal where all numbers are 0 has to be infinite, or no number.
        ratios = np.where(differences == 0, 0, differences / largest)
    return float(np.nan_to_num(ratios, nan=np.inf).max(initial=0))


def _has_last_digit(array: Array) -> bool:
    # Other whole numbers than those of images may be indices.
    return array.size > 0 and (array.dtype.kind in "fc" or array.dtype == np.uint8)


def _changed(generator: np.random.Generator, array: Array, tolerance: float) -> Array:
    """Return an array with other last digits: of each number, or of one in an image."""
    if not _has_last_digit(array):
        return array
    if array.dtype == np.uint8:
        changed = array.copy()
        changed.reshape(-1)[generator.integers(array.size)] ^= 1
        return changed
    digits = _LAST_DIGITS if tolerance < ROUGH else _LAST_DIGITS_OF_16_BITS
    digits = max(digits, 4 * float(np.finfo(array.dtype).eps))
    with np.errstate(all="ignore"):
        return np.asarray(array * (1 + digits * generator.uniform(-1, 1, array.shape)), array.dtype)
