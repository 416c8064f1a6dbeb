"""Memory of the batches of one input of a model."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster_serving.protocol.inputs import Array

_MOST_KEPT = 64 << 20
# In CPython: the attribute, and the argument of getrefcount.
_OWN_REFERENCES = 2


class BatchMemory:
    """Joins the arrays of records into one batch, in memory that is used again.

    The kernel clears fresh memory page by page, which takes longer than to write a batch of images into it. Memory that
    is still referred to is left alone: a model may return a part of its input, keep it, or hang with it.

    Args:
        dtype: What the model takes; None if it does not say.
    """

    def __init__(self, dtype: np.dtype[Any] | None) -> None:
        self._dtype = dtype
        self._memory = np.empty(0, np.uint8)

    def join(self, arrays: Sequence[Array], already_batched: bool) -> Array:
        """Make a batch.

        Args:
            arrays: One per record, of equal shapes, and of the model's dtype or one that it holds.
            already_batched: They have a batch dimension, in which their sizes may differ: concatenate them; otherwise
                stack them.

        Returns:
            The batch, contiguous; valid for as long as it is referred to. Of a single record perhaps a view.
        """
        first = arrays[0]
        dtype = self._dtype or first.dtype
        flags = first.flags
        if len(arrays) == 1 and first.dtype == dtype and flags.c_contiguous and (flags.writeable or dtype.hasobject):
            return first if already_batched else first[np.newaxis]
        rows = sum(map(len, arrays)) if already_batched else len(arrays)
        batch = self._take((rows, *(first.shape[1:] if already_batched else first.shape)), dtype)
        join = np.concatenate if already_batched else np.stack
        return join(arrays, out=batch)

    def _take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or size > _MOST_KEPT:
            return np.empty(shape, dtype)
        if len(self._memory) < size or sys.getrefcount(self._memory) > _OWN_REFERENCES:
            self._memory = np.empty(size, np.uint8)
        return self._memory[:size].view(dtype).reshape(shape)
