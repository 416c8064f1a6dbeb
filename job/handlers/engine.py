"""An engine that a handler calls."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster_serving.job.batch import gather_records
from cluster_serving.job.models.base import Model, Started, TensorSpec
from cluster_serving.job.options import ImageOptions
from cluster_serving.job.preprocessing import Preprocessor
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput
from cluster_serving.protocol.inputs import Array


class Engine:
    """A loaded model: `engine({"x": array})` computes a batch.

    Attributes:
        model: The model as a slot has it.
    """

    def __init__(self, model: Model, name: str) -> None:
        self.model = model
        self._name = name
        self._of = {
            batched: Preprocessor(model.inputs, model.layout, ImageOptions(), batched) for batched in (False, True)
        }

        # Dtype and shape of each input, where both are known and all values are taken.
        self._known = {
            spec.name: (spec.numpy_dtype, spec.record_shape)
            for spec in model.inputs
            if spec.numpy_dtype is not None and not spec.computed and None not in (spec.record_shape or (None,))
        }

    @property
    def inputs(self) -> list[TensorSpec]:
        """Inputs of the model, with the batch dimension in their shapes."""
        return self.model.inputs

    @property
    def outputs(self) -> list[TensorSpec]:
        """Outputs of the model; empty until the first call if only a call can tell."""
        return self.model.outputs

    def __call__(self, batch: Mapping[str, Any], checked: bool = False) -> dict[str, Array]:
        """Compute a batch.

        Args:
            batch: Input → array (n, ...), converted to the dtype of the model if no value changes its meaning. A model
                that reads texts takes a list of them; one with `padding` takes lists of arrays of different sizes.
            checked: True if the inputs are known to be those of the model.

        Returns:
            Output → array (n, ...), or an object array (n,) with an array of each record if these differ in size.

        Raises:
            InferenceFailed: If the inputs do not fit the model, or the engine fails.
        """
        return self.named(self.model.predict(self._arrays(batch, True, checked)))

    def start(self, record: Mapping[str, Any], checked: bool = False) -> Started:
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
