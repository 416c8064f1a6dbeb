"""An engine that a handler calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from cluster_serving.job.batch import gather_records
from cluster_serving.job.kinds.conversion import ByTable
from cluster_serving.job.models.base import Model, StartedRecord, TensorSpec
from cluster_serving.job.options import ImageOptions
from cluster_serving.job.preprocessing import Preprocessor
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput
from cluster_serving.protocol.inputs import Array


class Engine:
    """A loaded model: `engine({"x": array})` computes a batch.

    Args:
        model: Takes and returns its own tensors, or, as models that read texts or pad, batches.
        name: Name for messages.
        batched: Returns the same model with the batch first, for calls of other sizes than the model's fixed one. None
            if `model` is so already.

    Attributes:
        model: The model as a slot has it.
        batched: See above.
    """

    def __init__(self, model: Model, name: str, batched: Callable[[], Model] | None = None) -> None:
        self.model = model
        self.batched = cache(batched or (lambda: model))
        self._name = name
        specs = model.inputs if batched is None else [_whole(model, spec) for spec in model.inputs]
        self._takes_records = batched is None
        self._of = {
            of_batch: Preprocessor(
                specs, model.layout, ImageOptions(), of_batch and self._takes_records, conversion=ByTable()
            )
            for of_batch in (False, True)
        }
        sizes = {spec.shape[0] if spec.shape else None for spec in model.inputs}
        self._fixed = None if self._takes_records or len(sizes) > 1 else sizes.pop()
        # Dtype and shape of each input, where both are known and all values are taken.
        self._known = {
            spec.name: (spec.numpy_dtype, spec.shape[1:])
            for spec in model.inputs
            if spec.numpy_dtype is not None
            and not spec.computed
            and spec.shape
            and None not in spec.shape[1:]
            and spec.name not in model.anywhere
        }

    @property
    def inputs(self) -> list[TensorSpec]:
        """Inputs of the model."""
        return self.model.inputs

    @property
    def outputs(self) -> list[TensorSpec]:
        """Outputs of the model; empty until the first call if only a call can tell."""
        return self.model.outputs

    def __call__(self, batch: Mapping[str, Any], checked: bool = False) -> dict[str, Array]:
        """Compute a batch.

        Args:
            batch: Input → tensor as the model takes it, converted to the dtype of the model if no value changes its
                meaning. A model with a fixed batch takes any number of records. A model that reads texts takes a list
                of them; one with `padding` takes lists of arrays of different sizes.
            checked: True if the inputs are known to be those of the model.

        Returns:
            Output → tensor as the model returns it, unchecked. Of a model that reads texts or pads: array (n, ...), or
            an object array (n,) with an array of each record if these differ in size.

        Raises:
            InferenceFailed: If the inputs do not fit the model, or the engine fails.
        """
        arrays = self._arrays(batch, True, checked)
        other_size = self._fixed is not None and len(arrays[0]) != self._fixed
        return self.named((self.batched() if other_size else self.model).predict(arrays))

    def start(self, record: Mapping[str, Any], checked: bool = False) -> StartedRecord:
        """Start to compute one record; see `Model.start`."""
        return self.model.start(self._arrays(record, False, checked))

    def named(self, outputs: Sequence[Any]) -> dict[str, Any]:
        """Return outputs of the model by name."""
        # Some models name their outputs at the first call only.
        return dict(zip([spec.name for spec in self.model.outputs], outputs, strict=True))

    def _arrays(self, values: Mapping[str, Any], batched: bool, checked: bool) -> list[Array]:
        if checked or (batched and self._are_inputs(values)):
            return [values[spec.name] for spec in self.model.inputs]
        if batched and self.model.padded:
            return self._rows(values)
        try:
            return self._of[batched].prepare({name: np.asarray(value) for name, value in values.items()})
        except InvalidInput as error:
            # The handler has made these inputs, not the client.
            raise InferenceFailed(f"{self._name} cannot be called: {error}") from error

    def _rows(self, values: Mapping[str, Any]) -> list[Array]:
        """Return the inputs of a batch whose records may differ in size."""
        records = [
            self._arrays(dict(zip(values, row, strict=True)), False, False)
            for row in zip(*values.values(), strict=True)
        ]
        return gather_records(records, already_batched=False)

    def _are_inputs(self, values: Mapping[str, Any]) -> bool:
        """Return True if arrays need no conversion; it takes a tenth of the time of `Preprocessor.prepare`."""
        if len(values) != len(self.model.inputs) or values.keys() != self._known.keys():
            return False
        for name, (dtype, shape) in self._known.items():
            value = values[name]
            if type(value) is not np.ndarray or value.dtype != dtype or value.shape[1:] != shape or not len(value):
                return False
        return True


def _whole(model: Model, spec: TensorSpec) -> TensorSpec:
    """Return a spec whose records are whole tensors of the model, with a first dimension of any size."""
    if spec.shape is None or spec.name in model.anywhere:
        return replace(spec, shape=None)
    return replace(spec, shape=(None, *(None for _ in spec.shape[:1]), *spec.shape[1:]))
