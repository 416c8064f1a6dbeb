"""Conversion of the values of inputs to the dtypes that a model takes."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.slots import TensorSpec


class Conversion(Protocol):
    """Conversion of numbers and texts (`kinds.conversion`); `job.ways` gives it."""

    def of_list(self, name: str, values: Sequence[Any]) -> Array:
        """Return the array of a list, a number or a text.

        Raises:
            InvalidInput: If numbers would change beside others; the message has the name.
            ValueError: If lists differ in length.
        """

    def converted(self, name: str, array: Array, spec: TensorSpec, expected: str) -> Array:
        """Return an array of another dtype in that of an input.

        Raises:
            InvalidInput: If a value would change its meaning; the message has the name, and what the model `expected`.
        """

    def is_within(self, array: Array, dtype: np.dtype[Any]) -> bool:
        """Return True if a dtype holds all values."""
