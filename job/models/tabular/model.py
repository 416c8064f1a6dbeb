"""The base of the tabular engines: outputs that are functions of a table."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from cluster_serving.job.models.base import Model, TensorSpec
from cluster_serving.job.models.ports import choose
from cluster_serving.job.models.tabular.features import Features
from cluster_serving.job.models.tabular.refused import refusal
from cluster_serving.job.options import ModelOptions
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Array

LABEL, PROBABILITIES, VALUE = "label", "probabilities", "value"
"""Outputs: class and probabilities of the classes of a classifier; the number of any other model."""


_BORDER = 0.5
"""Probability above which a class is the answer, as in the libraries."""


class TabularModel(Model):
    """A model of features. A derived class loads it, and calls `_serve`.

    Its library computes each row alone, and trees often give random rows the same answer, which would prove nothing.
    """

    row_wise = True
    takes_missing = True
    has_sample = True

    refusals: tuple[type[Exception], ...] = (ValueError, TypeError)
    """Classes of the errors by which the library refuses values."""

    def _serve(self, features: Features, options: ModelOptions) -> None:
        """Set the inputs, and the outputs, which are those for a sample."""
        self._features, self.inputs = features, features.inputs
        answers = self._answers(self._table(features.read(features.sample())))
        available = {name: _spec(name, _array(output)) for name, output in answers.items()}
        self.outputs = choose("output", options.outputs, available)
        self._wanted = {spec.name for spec in self.outputs}

    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        try:
            answers = self._compute(inputs)
        except self.refusals as error:
            if not isinstance(error, ServingError) and len(inputs[0]) == 1:
                raise refusal(self.inputs, self._features, inputs, self._compute, error) from error
            raise
        return [_array(answers[spec.name]) for spec in self.outputs]

    def _compute(self, inputs: Sequence[Array]) -> Mapping[str, Any]:
        return self._answers(self._table(self._features.read(inputs)), self._wanted)

    def sample(self, batch: int | None) -> list[Array]:
        """Return rows of zeros, and of texts and categories that the model knows; see `Model.sample`."""
        return self._features.sample(batch or 1)

    def _table(self, inputs: Sequence[Array]) -> Any:
        return self._features.table(inputs)

    @abstractmethod
    def _answers(self, table: Any, wanted: Collection[str] = ()) -> Mapping[str, Any]:
        """Return the outputs of the rows of a table by name; the wanted ones suffice, and none means all."""


def classified(scores: Array) -> dict[str, Array]:
    """Return the outputs of a classifier, from the probabilities (n,) of class 1, or (n, classes) of every class."""
    if scores.ndim > 1:
        return {LABEL: scores.argmax(axis=1), PROBABILITIES: scores}
    return {LABEL: (scores > _BORDER).astype(np.int64), PROBABILITIES: np.stack([1 - scores, scores], axis=1)}


def labelled(scores: Array) -> dict[str, Array]:
    """Return the outputs of a classifier of several labels, from the probability (n, labels) of each of them."""
    return {LABEL: (scores > _BORDER).astype(np.int64), PROBABILITIES: scores}


def _spec(name: str, sample: Array) -> TensorSpec:
    return TensorSpec(name, "str" if sample.dtype == object else sample.dtype.name, (None, *sample.shape[1:]))


def _array(output: Any) -> Array:
    """Return an output as numbers, or as objects that are texts; a sparse one is made dense."""
    dense = output.toarray() if hasattr(output, "toarray") else np.asarray(output)
    return dense.astype(object) if dense.dtype.kind == "U" else dense
