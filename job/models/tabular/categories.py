"""Categories of a column of a data frame: the values that clients send, and the codes that trees know."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_serving.job.models.category import not_a_category
from cluster_serving.protocol.inputs import Array


@dataclass(frozen=True, slots=True)
class Categories:
    """The categories of a column, as the model's file holds them.

    Attributes:
        values: Texts, or numbers, in the order of their codes.
        takes_others: Another value is a missing one. Otherwise it is refused.
    """

    values: Sequence[Any]
    takes_others: bool

    @property
    def are_texts(self) -> bool:
        """True if clients send texts."""
        return any(isinstance(value, str) for value in self.values)

    def codes(self, name: str, column: Array) -> Array:
        """Return the codes (n,) of the values of a column, as float64; NaN for a missing value.

        Raises:
            InvalidInput: If a value is not a category, and others are not taken.
        """
        known = {value: code for code, value in enumerate(self.values)}
        found = np.array([known.get(value, np.nan) for value in column.tolist()], np.float64)
        if not self.takes_others:
            self._refuse_others(name, column[np.isnan(found)].tolist())
        return found

    def _refuse_others(self, name: str, values: Sequence[Any]) -> None:
        others = [value for value in values if isinstance(value, str) or not (value is None or math.isnan(value))]
        if others:
            raise not_a_category(name, others[0], self.values)
