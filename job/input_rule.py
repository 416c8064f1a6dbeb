"""An input of a model: what it takes of a record."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from cluster_serving.job.conversion import Conversion
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array, Images, Input
from cluster_serving.protocol.slots import TensorSpec, filled, fits, type_text


class InputRule:
    """The kinds, dtypes and shapes that one input of the model takes.

    Args:
        spec: Input of the model.
        batched: Records have a batch dimension of their own.
        conversion: Converts values of other dtypes; None to refuse them.

    Attributes:
        shape: Shape of the values of a record; None if all shapes are taken.
        rank: Number of dimensions, without the one of a batch; None if all are taken.
        readers: For types of values beside arrays: what makes the array of a value (`input_kind.InputKind.reader`).
    """

    def __init__(self, spec: TensorSpec, batched: bool, conversion: Conversion | None) -> None:
        self.spec = spec
        self.batched = batched
        self.shape = self.record_shape = spec.record_shape
        self.rank = None if self.shape is None else len(self.shape)
        if batched and self.shape is not None:
            self.shape = (None, *self.shape)
        self.readers: Mapping[type, Callable[[str, Any], Array]] = {}
        self._conversion = conversion
        self._dtype = spec.numpy_dtype
        self._computed = np.dtype(spec.computed) if spec.computed else None
        self._is_text = spec.dtype == "str"
        self._text = f"{spec.name}: {type_text(spec.dtype, self.shape)}"

    def __str__(self) -> str:
        return self._text

    def takes(self, value: Input) -> bool:
        """Return True if a value passes unchanged, as all values of its type, dtype and shape do."""
        return (
            isinstance(value, np.ndarray)
            and not self._is_text
            and self._computed is None
            and value.dtype.kind not in "OU"
            and (self._dtype is None or value.dtype == self._dtype)
            and fits(value.shape, self.shape)
        )

    def apply(self, name: str, value: Input) -> Array:
        """Return the array of a value; raise `InvalidInput`, with the name, if the input does not take the value."""
        if (read := self.readers.get(type(value))) is not None:
            array = read(name, value)
        elif isinstance(value, np.ndarray | np.generic):  # of a column of a batch, a row is a scalar
            array = self._tensor(name, value)
        elif isinstance(value, Images):
            raise InvalidInput(f"input {name!r} is a column of {len(value)} images; each is prepared by itself")
        else:
            raise InvalidInput(f"input {name!r} is of a kind that this job does not read: {type(value).__name__}")
        if self._computed is not None and not (self._conversion and self._conversion.is_within(array, self._computed)):
            raise InvalidInput(
                f"input {name!r} has values beyond those of {self._computed}, in which the engine computes {self}"
            )
        if self.batched and not (array.ndim and len(array)):
            raise InvalidInput(f"input {name!r} of shape {list(array.shape)} has no batch dimension, or an empty one")
        return array

    def _tensor(self, name: str, value: Array) -> Array:
        shape = filled(value.shape, self.record_shape)
        if not fits(shape, self.shape):
            if self._dtype is not None and value.dtype.kind in "biuf" and value.dtype != self._dtype:
                # The dtype is not the reason: it would be converted.
                raise InvalidInput(f"input {name!r} has shape {list(value.shape)}, but the model expects {self}")
            raise self.refused(name, value, value.shape)
        return self.converted(name, value if shape == value.shape else value.reshape(shape))

    def converted(self, name: str, array: Array) -> Array:
        """Return an array in the dtype of the input; raise `InvalidInput` if a value would change its meaning."""
        # For numpy, None is float64.
        if self._dtype is not None and array.dtype == self._dtype:
            return array
        if not self.spec.dtype:
            return self._any(name, array)
        if self._is_text and not array.size:
            # An empty list has no dtype.
            return array.astype(object)
        if self._conversion is None:
            raise self.refused(name, array, array.shape)
        return self._conversion.converted(name, array, self.spec, str(self))

    def _any(self, name: str, array: Array) -> Array:
        if array.dtype.kind not in "OU":
            return array
        if all(isinstance(item, str) for item in array.flat):
            return array.astype(object, copy=False)
        raise self.refused(name, array, array.shape)

    def refused(self, name: str, values: Array, shape: Sequence[int], kind: str = "") -> InvalidInput:
        """Return the error for values of another dtype or shape; missing texts alone are null."""
        texts = "null" if values.dtype.kind == "O" and set(values.flat) == {None} else "str"
        named = texts if values.dtype.kind in "OU" else values.dtype.name
        return InvalidInput(f"input {name!r} is {kind}{type_text(named, shape)}, but the model expects {self}")
