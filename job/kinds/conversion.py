"""Conversion by the table of conversions (`protocol.values.table`), which clients and front end have, too."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.slots import TensorSpec
from cluster_serving.protocol.values.arrays import of_array, within
from cluster_serving.protocol.values.number_lists import exact
from cluster_serving.protocol.values.table import Refused


class ByTable:
    """See `job.conversion.Conversion`."""

    def of_list(self, name: str, values: Sequence[Any]) -> Array:
        """See `Conversion.of_list`."""
        return exact(name, values)

    def converted(self, name: str, array: Array, spec: TensorSpec, expected: str) -> Array:
        """See `Conversion.converted`."""
        try:
            return of_array(array, spec)
        except Refused as error:
            raise InvalidInput(f"{error.of(name)}; the model expects {expected}") from None

    def is_within(self, array: Array, dtype: np.dtype[Any]) -> bool:
        """See `Conversion.is_within`."""
        return within(array, dtype)
