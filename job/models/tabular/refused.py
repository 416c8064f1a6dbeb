"""Which value of a row a library refuses, such as null for an estimator that takes no missing values."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.tabular.features import Features
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array

_MOST_CHARACTERS = 64


def refusal(
    specs: Sequence[TensorSpec],
    features: Features,
    row: Sequence[Array],
    compute: Callable[[Sequence[Array]], Any],
    error: Exception,
) -> Exception:
    """Return `InvalidInput` that names a value without which the row is computed; else the error itself.

    The values of the sample, which the model has computed, take the places of those of the row, one after the other.

    Args:
        specs: The inputs of the model.
        features: What has the sample.
        row: Arrays of one row, on which `compute` has failed.
        compute: Computes a row.
        error: The error.
    """
    sample = features.sample()
    errors = {}
    places = [(at, place) for at, array in enumerate(row) for place in range(array.size)]

    def fails(count: int) -> bool:
        """Return True if the row fails with its first values, and those of the sample for the others."""
        mixed = [np.array(array, row[at].dtype).reshape(row[at].shape) for at, array in enumerate(sample)]
        for at, place in places[:count]:
            mixed[at].flat[place] = row[at].flat[place]
        try:
            compute(mixed)
        except Exception as found:
            errors[count] = found
            return True
        return False

    if any(found.size != array.size for found, array in zip(sample, row, strict=True)) or fails(0):
        return error
    number = bisect_left(range(1, len(places)), True, key=fails)
    at, place = places[number]
    name, value = specs[at].name, row[at].flat[place]
    where = f"input {name!r}" if row[at].ndim == 1 else f"value {place} of input {name!r}"
    said = str(errors.get(number + 1, error)).strip().partition("\n")[0]
    return InvalidInput(f"{where} is {_shown(value)}, which the model refuses: {said}")


def _shown(value: Any) -> str:
    if value is None or value != value:
        return "null"
    return repr(value.item() if isinstance(value, np.generic) else value)[:_MOST_CHARACTERS]
