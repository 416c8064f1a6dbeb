"""Features of a tabular model as inputs of a job: the vector `x`, or an input for each named column."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.ports import choose_inputs
from cluster_serving.job.models.tabular.categories import Categories
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.inputs import Array

VECTOR = "x"
"""Name of the input of a model that takes all features as one vector."""


class Features:
    """The inputs of a model of features.

    A model that does not name its features takes the vector `x`. A model that names them takes a value for each name,
    as a row of a data frame has them; if `inputs` of the configuration is `x`, it takes the vector instead, as an array
    without the categories of a frame.

    Args:
        names: Names of the features in the order of the model; empty if the model has none.
        count: Number of features; None if the model does not tell.
        options: Names of the inputs in the configuration, and the number that is a missing value.
        dtype: Type of the numbers.
        texts: Features that are texts → a text that the model knows; with one of them there is no vector.
        samples: Features of numbers → a number that the model knows, if it does not take any number.
        read: Features that the model reads; None for all. Requests may have the others, but for a vector.
        categories: Features whose codes the model computes → their categories.
        takes_codes: Texts of categories may be sent as whole numbers.

    Attributes:
        columns: Names of the features if each is an input; empty for a vector.
        inputs: The inputs, in the order of requests.
    """

    def __init__(
        self,
        names: Sequence[str],
        count: int | None,
        options: ModelOptions,
        dtype: str = "float64",
        texts: Mapping[str, str] = MappingProxyType({}),
        categories: Mapping[str, Categories] = MappingProxyType({}),
        takes_codes: bool = False,
        samples: Mapping[str, Any] = MappingProxyType({}),
        read: Sequence[str] | None = None,
    ) -> None:
        read = names if read is None else read
        column = "yes" if len(read) == len(names) else "some"
        self.columns = list(read) if texts or options.inputs != (VECTOR,) else []
        self._names = list(names)
        self._texts = {**texts, **{name: found.values[0] for name, found in categories.items() if found.are_texts}}
        specs = {
            name: TensorSpec(name, "str", (None,), column="codes" if takes_codes else column)
            if name in self._texts
            else TensorSpec(name, dtype, (None,), column=column)
            for name in self.columns
        }
        self.inputs = choose_inputs(options.inputs, specs or {VECTOR: TensorSpec(VECTOR, dtype, (None, count))})
        self._categories = categories if self.columns else {}
        self._missing = options.missing_value
        self._samples = {**samples, **{name: found.values[0] for name, found in self._categories.items()}}
        sent = [spec.name for spec in self.inputs]
        self._order = [sent.index(name) for name in self.columns]

    def sample(self, rows: int = 1) -> list[Array]:
        """Return a batch that the model can compute: zeros, and texts and categories that it knows."""
        return [self._sample(spec, rows) for spec in self.inputs]

    def read(self, inputs: Sequence[Array]) -> list[Array]:
        """Return a batch with NaN for missing values, and codes for categories.

        Raises:
            InvalidInput: If a value is not a category.
        """
        return [self._read(spec.name, array) for spec, array in zip(self.inputs, inputs, strict=True)]

    def named(self, inputs: Sequence[Array]) -> dict[str, Array]:
        """Return the columns (n,) of a batch by name, in the order of the model."""
        return {name: inputs[at] for name, at in zip(self.columns, self._order, strict=True)}

    def table(self, inputs: Sequence[Array]) -> Array:
        """Return a batch as an array (n, features) in the order of the model, of objects if there are texts."""
        return np.stack([inputs[at] for at in self._order], axis=1) if self.columns else inputs[0]

    def _sample(self, spec: TensorSpec, rows: int) -> Array:
        if spec.dtype == "str":
            return np.full(rows, self._texts.get(spec.name, ""), object)
        sample = np.zeros([rows, *(size or 1 for size in (spec.shape or ())[1:])], spec.dtype)
        if spec.name in self._samples:
            sample[:] = self._samples[spec.name]
        elif sample.ndim > 1:
            for name, value in self._samples.items():
                sample[:, self._place(name)] = value
        return sample

    def _place(self, name: str) -> int:
        """Return the place of a feature in the vector; one without a name has its number."""
        return self._names.index(name) if self._names else int(name)

    def _read(self, name: str, array: Array) -> Array:
        if self._missing is not None and array.dtype.kind == "f":
            array = np.where(array == self._missing, array.dtype.type(np.nan), array)
        found = self._categories.get(name)
        return array if found is None else found.codes(name, array)
