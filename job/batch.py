"""Batches of records: merge them into one model call, split its outputs, and isolate the record that makes it fail."""

import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from cluster_serving.protocol.errors import InferenceFailed, InferenceTimeout, ServingError
from cluster_serving.protocol.inputs import Array

_MAX_KEPT_BYTES = 64 << 20
# In CPython: the reference of the attribute, and that of getrefcount's argument.
_OWN_REFERENCES = 2

T = TypeVar("T")
R = TypeVar("R")

Arrays = list[Array]


class BatchMemory:
    """Memory for the batches of one input of a model, which is used again.

    The kernel clears fresh memory page by page, which takes longer than writing a batch of images into it. Memory that
    is still referred to is not reused: a model may return a part of its input, keep it, or hang with it. Without the
    dtype of the input, a batch has the dtype of its records.
    """

    def __init__(self, dtype: np.dtype[Any] | None) -> None:
        self._dtype = dtype
        self._memory = np.empty(0, np.uint8)

    def join(self, arrays: Sequence[Array], already_batched: bool) -> Array:
        """Join arrays of equal shapes, one per record, into one contiguous batch; for a single record it may be a view.

        Arrays that are `already_batched` may differ in their batch dimension, and are concatenated instead of stacked.
        """
        first = arrays[0]
        dtype = self._dtype or first.dtype
        flags = first.flags
        if len(arrays) == 1 and first.dtype == dtype and flags.c_contiguous and (flags.writeable or dtype.hasobject):
            return first if already_batched else first[np.newaxis]
        rows = sum(map(len, arrays)) if already_batched else len(arrays)
        batch = self.take((rows, *(first.shape[1:] if already_batched else first.shape)), dtype)
        join = np.concatenate if already_batched else np.stack
        return join(arrays, out=batch)

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return memory for a batch, with any content; `dtype` is that of the records."""
        dtype = self._dtype or dtype
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or size > _MAX_KEPT_BYTES:
            return np.empty(shape, dtype)
        if len(self._memory) < size or sys.getrefcount(self._memory) > _OWN_REFERENCES:
            self._memory = np.empty(size, np.uint8)
        return self._memory[:size].view(dtype).reshape(shape)


def merge(records: Sequence[Arrays], memories: Sequence[BatchMemory], already_batched: bool) -> Arrays:
    """Merge records, which have an array and a memory per model input, into a batch; see `BatchMemory.join`."""
    return [
        memory.join(arrays, already_batched)
        for memory, arrays in zip(memories, zip(*records, strict=True), strict=True)
    ]


def gather_records(records: Sequence[Arrays], already_batched: bool) -> Arrays:
    """Return an array of records (`gather`) per model input, for a model that fills them up to the same size."""
    inputs = zip(*records, strict=True)
    return [gather(chain.from_iterable(arrays) if already_batched else arrays) for arrays in inputs]


def split(outputs: Sequence[Array], rows: Sequence[int], already_batched: bool, fill: bool = False) -> list[Arrays]:
    """Split a model's outputs into those of each record, which keep the batch dimension if `already_batched`.

    An output is an array whose first dimension is the batch, or `gather` has made it of an array per record.

    Args:
        outputs: Outputs of the batch.
        rows: Number of rows that each record contributed to the batch: 1, unless `already_batched`.
        already_batched: Records have a batch dimension of their own.
        fill: Fill up the rows of such a record with zeros where they differ in shape.

    Raises:
        InferenceFailed: If such rows differ in shape, and `fill` is False.
    """
    if not already_batched:
        return [[_row(output, index) for output in outputs] for index in range(len(rows))]
    ends = np.cumsum(rows)
    return [
        [_rows(output[end - count : end], fill) for output in outputs] for end, count in zip(ends, rows, strict=True)
    ]


def gather(rows: Iterable[Array]) -> Array:
    """Return an object array (n,) of arrays, one per record, which may differ in shape."""
    return np.fromiter(rows, object)


def are_gathered(batch: Array) -> bool:
    """Return True if a batch has an array per record; see `gather`."""
    return batch.dtype == object and batch.ndim == 1 and len(batch) > 0 and isinstance(batch[0], np.ndarray)


def _row(output: Array, index: int) -> Array:
    # With the dots, a single string is an array too.
    return output[index] if are_gathered(output) else output[index, ...]


def _rows(output: Array, fill: bool) -> Array:
    """Return the outputs of a request that is a batch."""
    if not are_gathered(output):
        return output
    shapes = {row.shape for row in output}
    if len(shapes) == 1:
        return np.stack([*output])
    if not fill:
        raise InferenceFailed(
            f"the records of the request have outputs of the shapes {', '.join(sorted(map(str, map(list, shapes))))}, "
            "which make no batch; send each record as a request of its own"
        )
    shape = np.max([row.shape for row in output], axis=0)
    filled = np.zeros((len(output), *shape), output[0].dtype)
    for place, row in zip(filled, output, strict=True):
        place[tuple([slice(size) for size in row.shape])] = row
    return filled


def group_by_shape(records: Sequence[Arrays]) -> list[list[int]]:
    """Return the indices of records that can be merged: decoded images of one signature may differ in size."""
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for index, arrays in enumerate(records):
        groups.setdefault(tuple([array.shape for array in arrays]), []).append(index)
    return list(groups.values())


class NotWritten(Exception):
    """A part of an answer cannot be written, which is no failure of an item; the cause is the writer's exception."""


class SuspectItem:
    """An item of a call that failed as a whole: it, or another one, is the cause.

    Attributes:
        error: The failure of the call.
        item: The item for the next attempt.
    """

    __slots__ = ("error", "item")

    def __init__(self, error: ServingError, item: Any) -> None:
        self.error = error
        self.item = item


def attempt(run: Callable[[Sequence[T]], list[R]], items: Sequence[T]) -> list[R | ServingError | SuspectItem]:
    """Run a batch once; of one that fails, the culprit has the error if it is known, and all others are suspects.

    It is known if there is one item, or if the error has the `index` of an item.

    Raises:
        NotWritten: If `run` raises it.
    """
    try:
        return list(run(items))
    except NotWritten:
        raise
    except ServingError as error:
        failure = error
    except Exception as error:
        failure = InferenceFailed(f"{type(error).__name__}: {error}")
    culprit = 0 if len(items) == 1 else getattr(failure, "index", None)
    return [failure if index == culprit else SuspectItem(failure, item) for index, item in enumerate(items)]


def search(
    run: Callable[[Sequence[T]], list[R]], items: Sequence[T], failure: ServingError | None = None
) -> Iterator[dict[int, R | ServingError] | None]:
    """Run a batch; halve what fails until only the items that cause a failure fail.

    A batch that hangs is run again item by item, because each run that hangs costs the timeout and a copy of the model.
    If an error tells the culprit, the others are run together.

    Args:
        run: Returns one result per item: an error or a `SuspectItem` for one that fails alone or with others. It may
            raise anything.
        items: Items of the batch.
        failure: That of a run of all of them, which is not repeated then; None if there was none.

    Yields:
        Results by index, as soon as they are known; None after a run that has left suspects.

    Raises:
        NotWritten: See `attempt`.
    """
    tried = list(items)
    group = list(range(len(tried)))
    results = [SuspectItem(failure, item) for item in tried] if failure else attempt(run, tried)
    if not any([type(result) is SuspectItem for result in results]):
        # Nearly all batches are so.
        yield dict(zip(group, results, strict=True))  # type: ignore[arg-type]
        return
    groups: deque[list[int]] = deque()
    while True:
        done, suspects, failures = {}, [], set()
        for index, result in zip(group, results, strict=True):
            if isinstance(result, SuspectItem) and len(group) > 1:
                tried[index] = result.item
                suspects.append(index)
                failures.add(result.error)
            else:
                done[index] = result.error if isinstance(result, SuspectItem) else result
        if done:
            yield done
        if suspects:
            hang = any(isinstance(error, InferenceTimeout) for error in failures)
            known = any(isinstance(result, ServingError) for result in done.values())
            size = 1 if hang else len(suspects) if known else -(-len(group) // 2)
            # Depth first: the first culprit is known after few runs, and what it tells helps with the others.
            groups.extendleft([suspects[start : start + size] for start in reversed(range(0, len(suspects), size))])
            yield None
        if not groups:
            return
        group = groups.popleft()
        results = attempt(run, [tried[index] for index in group])


def isolate(run: Callable[[Sequence[T]], list[R]], items: Sequence[T]) -> list[R | ServingError]:
    """Return the results of `search` in the order of the items: an item that alone causes an error has it."""
    found: dict[int, R | ServingError] = {}
    for step in search(run, items):
        found |= step or {}
    return [found[index] for index in range(len(items))]
