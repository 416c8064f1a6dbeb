"""Inputs and outputs of a model as an engine chooses them by the options."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.inputs import Array

T = TypeVar("T")


def batch_shape(record_shape: Sequence[int]) -> tuple[int | None, ...]:
    """Return the shape of a batch of any size, for records of a configured shape, where -1 is a free size."""
    return (None, *(None if size < 0 else size for size in record_shape))


def choose(kind: str, wanted: Sequence[str], available: Mapping[str, T]) -> list[T]:
    """Return the inputs or outputs (`kind`, for the message) of the wanted names; all of them if none is wanted.

    Raises:
        ModelError: If the model has no such name. The message lists the existing names.
    """
    for name in wanted:
        if name not in available:
            raise ModelError(f"the model has no {kind} {name!r}; its {kind}s are {', '.join(available) or 'unnamed'}")
    return [available[name] for name in wanted or available]


def choose_inputs(wanted: Sequence[str], available: Mapping[str, TensorSpec]) -> list[TensorSpec]:
    """Return the inputs in the wanted order, for an engine that needs all of them.

    Raises:
        ModelError: If the model has no such input, or an input is missing or named twice.
    """
    inputs = choose("input", wanted, available)
    if sorted(spec.name for spec in inputs) != sorted(spec.name for spec in available.values()):
        raise ModelError(f"the model needs every one of its inputs, once: {', '.join(map(str, available.values()))}")
    return inputs


def writable(array: Array) -> Array:
    """Return the array itself if an engine can use its memory in place, else a copy."""
    return array if array.flags.c_contiguous and array.flags.writeable else array.copy()
