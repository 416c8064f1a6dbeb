"""Merging records into one model call, splitting its outputs, and finding the record that breaks it. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from cluster_serving.job.batch_memory import BatchMemory
from cluster_serving.protocol.errors import InferenceFailed, InferenceTimeout, ServingError
from cluster_serving.protocol.inputs import Array

T = TypeVar("T")
R = TypeVar("R")

Arrays = list[Array]


def merge(records: Sequence[Arrays], memories: Sequence[BatchMemory], already_batched: bool) -> Arrays:
    """Merge records into one batch.

    Args:
        records: Per record, one array per model input; all of equal shapes.
        memories: One per model input; see `BatchMemory.join` for what it takes and returns.
        already_batched: The arrays have a batch dimension.

    Returns:
        One array per model input, its first dimension the batch.
    """
    return [
        memory.join(arrays, already_batched)
        for memory, arrays in zip(memories, zip(*records, strict=True), strict=True)
    ]


def split(outputs: Sequence[Array], rows: Sequence[int], already_batched: bool) -> list[Arrays]:
    """Split a model's outputs back into records.

    Args:
        outputs: One array per model output, its first dimension the batch.
        rows: Rows that each record contributed to the batch; all 1 unless `already_batched`.
        already_batched: Keep the batch dimension in each record's part.

    Returns:
        Per record, one array per output.
    """
    if not already_batched:
        # The dots make an array of a single string, too.
        return [[output[index, ...] for output in outputs] for index in range(len(rows))]
    ends = np.cumsum(rows)
    return [[output[end - count : end] for output in outputs] for end, count in zip(ends, rows, strict=True)]


def group_by_shape(records: Sequence[Arrays]) -> list[list[int]]:
    """Indices of records that can be merged: images of one signature still differ in size once they are decoded."""
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for index, arrays in enumerate(records):
        groups.setdefault(tuple([array.shape for array in arrays]), []).append(index)
    return list(groups.values())


def isolate(run: Callable[[Sequence[T]], list[R]], items: Sequence[T]) -> list[R | ServingError]:
    """Run a batch; if it fails, halve it until only the culprits fail.

    A batch that hangs is run again item by item: every try that hangs costs the timeout and a copy of the model.

    Args:
        run: Runs a batch and returns one result per item; may raise anything.
        items: The batch, at least one item.

    Returns:
        Per item its result, or the error that this item alone causes.
    """
    try:
        return list(run(items))
    except InferenceTimeout as error:
        return [error] if len(items) == 1 else [result for item in items for result in isolate(run, [item])]
    except ServingError as error:
        failure = error
    except Exception as error:
        failure = InferenceFailed(f"{type(error).__name__}: {error}")
    if len(items) == 1:
        return [failure]
    middle = len(items) // 2
    return isolate(run, items[:middle]) + isolate(run, items[middle:])
