"""Comparison of a record's answer in a shared call with its answer alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from cluster_serving.job.models.base import ROUGH
from cluster_serving.job.models.batched.comparison import alike
from cluster_serving.job.models.batched.sample import Sample
from cluster_serving.protocol.inputs import Array

SAME, ROUNDING, DOUBTFUL, DIFFERS = VERDICTS = ("same", "rounding", "doubtful", "differs")
"""What comes of a comparison, the worst one last. `DOUBTFUL`: nothing tells a dependence from rounding."""

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

    A difference is examined with a call of the same size that has this record in all places. If the record gets there
    what it got in the shared call, the other records have no part in the difference, but the size of the call has.
    Kernels for another size round in another way. That explains a difference if a change in the last digits of the
    inputs makes one, too.

    Args:
        sample: The record.
        model: Computes it.
        tolerance: See `Model.tolerance`.
    """
    alone = model.alone(sample.inputs)
    verdicts = [
        SAME if _agree(*each, tolerance) else DIFFERS
        for each in zip(alone, sample.outputs, sample.largest, strict=True)
    ]
    if DIFFERS not in verdicts:
        return verdicts
    own = slice(sample.place, sample.place + 1)
    copies, again = ([array[own] for array in model.together(sample.copies)] for _ in range(2))
    reach = _reach(sample, alone, model, tolerance)
    for index, verdict in enumerate(verdicts):
        largest, shared = sample.largest[index], sample.outputs[index]
        if verdict == SAME:
            continue
        if not _agree(copies[index], again[index], largest, tolerance):
            verdicts[index] = DOUBTFUL
        elif _agree(copies[index], shared, largest, tolerance):
            if reach is None:
                verdicts[index] = DOUBTFUL
            elif reach[index] >= _PART * _difference(alone[index], shared):
                verdicts[index] = ROUNDING
    return verdicts


def worst(verdicts: Sequence[str]) -> int:
    """Return the index of the output with the worst verdict."""
    return max(range(len(verdicts)), key=lambda index: VERDICTS.index(verdicts[index]))


def _agree(one: Array, other: Array, largest: Array, tolerance: float) -> bool:
    if one.shape != other.shape:
        return False
    # A record may have small numbers only, as sums of larger ones.
    return alike(np.append(one, largest), np.append(other, largest), tolerance)


def _reach(sample: Sample, alone: Sequence[Array], model: Computer, tolerance: float) -> list[float] | None:
    """Return how much each output changes with the last digits of the inputs; None if the inputs have none."""
    if not any(_has_last_digit(array) for array in sample.inputs):
        return None
    generator = np.random.default_rng(0)
    reach = [0.0] * len(alone)
    for _ in range(_TRIES):
        outputs = model.alone([_changed(generator, array, tolerance) for array in sample.inputs])
        reach = [max(known, _difference(*pair)) for known, *pair in zip(reach, alone, outputs, strict=True)]
    return reach


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


def _difference(one: Array, other: Array) -> float:
    """Return the largest difference of numbers with a fraction; of others, the part that is not equal."""
    if one.shape != other.shape:
        return float("inf")
    if one.dtype.kind not in "fc":
        return float(np.mean(one != other)) if one.size else 0.0
    with np.errstate(all="ignore"):
        differences = np.where(one == other, 0, np.abs(one - other))
    differences = differences[~(np.isnan(one) & np.isnan(other))]
    return float(np.nan_to_num(differences, nan=np.inf).max(initial=0))
