"""Types of a request's inputs: a `numpy.ndarray`, an image file, a sparse tensor or several images; and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
"""An array of any dtype and shape."""


@dataclass(frozen=True)
class Image:
    """An encoded image file (JPEG, PNG, BMP, WebP, TIFF); the server decodes it."""

    data: bytes


@dataclass(frozen=True)
class Images:
    """Images of several records, in a column (`protocol.columns`): its first dimension is indexed as an array's."""

    files: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: Any) -> Any:
        return Images(self.files[index]) if isinstance(index, slice) else Image(self.files[index[0]])

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.files))


@dataclass(frozen=True)
class SparseTensor:
    """A tensor given by its non-zero values.

    Attributes:
        indices: Integer array (ndim, nnz); row i holds the coordinates along dimension i, as in the original client.
        values: Array (nnz,) of the tensor's dtype.
        shape: Dense shape, ndim numbers.
    """

    indices: NDArray[np.int64]
    values: Array
    shape: tuple[int, ...]


Input = Union[Array, Image, SparseTensor, Images]
"""One named input; a string tensor is an ndarray of dtype object that holds `str`, or None for a missing value."""

MAX_DIMENSIONS = 32
"""Most dimensions of a tensor; numpy's own limit before its version 2."""

MAX_INPUTS = 1024
"""Limit of the number of inputs of a request."""

MAX_STRINGS = 1 << 20
"""Limit of the number of strings in a tensor: one byte in a request can become a string of a hundred bytes."""
