"""Features of a tabular model as inputs of a job: the vector `x`, or an input for each named column."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from cluster_serving.job.models.base import TensorSpec, choose_inputs
from cluster_serving.protocol.inputs import Array

VECTOR = "x"
"""Name of the input of a model that takes all features as one vector."""


class Features:
    """The inputs of a model of features.

    A model that does not name its features takes the vector `x`. A model that names them takes a value for each name,
    as a row of a data frame has them; if `inputs` of the configuration is `x`, it takes the vector instead.

    Args:
        names: Names of the features in the order of the model; empty if the model has none.
        count: Number of features; None if the model does not tell.
        wanted: Names of the inputs in the configuration; empty for those of the model.
        dtype: Type of the numbers.
        texts: Features that are texts → a text that the model knows; with one of them there is no vector.

    Attributes:
        columns: Names of the features if each is an input; empty for a vector.
        inputs: The inputs, in the order of requests.
    """

    def __init__(
        self,
        names: Sequence[str],
        count: int | None,
        wanted: Sequence[str] = (),
        dtype: str = "float64",
        texts: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.columns = list(names) if texts or tuple(wanted) != (VECTOR,) else []
        specs = {name: TensorSpec(name, "str" if name in texts else dtype, (None,)) for name in self.columns}
        self.inputs = choose_inputs(wanted, specs or {VECTOR: TensorSpec(VECTOR, dtype, (None, count))})
        self._texts = texts
        sent = [spec.name for spec in self.inputs]
        self._order = [sent.index(name) for name in self.columns]

    def sample(self) -> list[Array]:
        """Return a batch of one row that the model can compute: zeros, and texts that it knows."""
        return [
            np.full(1, self._texts.get(spec.name, ""), object)
            if spec.dtype == "str"
            else np.zeros([size or 1 for size in spec.shape or ()], spec.dtype)
            for spec in self.inputs
        ]

    def named(self, inputs: Sequence[Array]) -> dict[str, Array]:
        """Return the columns (n,) of a batch by name, in the order of the model."""
        return {name: inputs[at] for name, at in zip(self.columns, self._order, strict=True)}

    def table(self, inputs: Sequence[Array]) -> Array:
        """Return a batch as an array (n, features) in the order of the model, of objects if there are texts."""
        return np.stack([inputs[at] for at in self._order], axis=1) if self.columns else inputs[0]
