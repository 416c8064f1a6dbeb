"""What every engine has in common: named tensors, one batched call, errors that name the cause."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, TypeVar

import numpy as np

from cluster_serving.protocol.errors import InferenceFailed, ModelError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.slots import TensorSpec, type_text

__all__ = [
    "Layout",
    "Model",
    "TensorSpec",
    "cause",
    "choose",
    "common_batch",
    "dummy_inputs",
    "type_text",
    "writable",
]

Layout = Literal["HWC", "CHW"]
"""Order of an image's axes: height, width, channel."""

T = TypeVar("T")


class Started:
    """A record that is being computed.

    Args:
        outputs: Waits for its outputs and gives them, or raises `InferenceFailed`.
        wait: Waits for it so many seconds at most, and says whether it is computed, or has failed; does not raise.
    """

    def __init__(self, outputs: Callable[[], list[Array]], wait: Callable[[float], bool]) -> None:
        self.outputs = outputs
        self.wait = wait


class Model(ABC):
    """A loaded model that computes one batch per call; it is used by one thread at a time.

    Attributes:
        engine: Name of the engine, for messages.
        layout: Order of the axes of the images that models of this engine take.
        inputs: What `predict` takes, in order.
        outputs: What `predict` returns, in order; empty as long as only a first call can tell.
        fixed_batch: The one size of a batch that the engine computes, to which `predict` cuts and pads; None if any
            will do.
        overlaps: Whether `start` can be used.
    """

    layout: Layout = "CHW"
    fixed_batch: int | None = None
    overlaps: bool = False
    engine: str
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]

    def predict(self, inputs: Sequence[Array]) -> list[Array]:
        """Compute one batch.

        Args:
            inputs: One array per entry of `self.inputs`, in that order and of its dtype (`object` that holds `str` for
                "str"); the first dimension is the batch.

        Returns:
            One array per output; the first dimension is the batch. The caller owns them: no later call changes them.

        Raises:
            InferenceFailed: The engine failed, or returned something else than one row per record.
            ModelError: An output named in the options does not exist, where only a call can tell.
        """
        for spec, array in zip(self.inputs, inputs, strict=True):
            # Some engines would convert, and lose digits. Comparing dtypes is five times as fast as their names.
            if spec.dtype and array.dtype != ("O" if spec.dtype == "str" else spec.dtype):
                raise InferenceFailed(f"input {spec.name!r} is {array.dtype.name}; {self.describe()}")
        with self._failing():
            outputs = self._run(inputs) if self.fixed_batch is None else self._run_fixed(inputs, self.fixed_batch)
        batch = len(inputs[0])
        for index, array in enumerate(outputs):
            if not array.ndim or len(array) != batch:
                name = self.outputs[index].name if index < len(self.outputs) else str(index)
                raise InferenceFailed(
                    f"output {name!r} has shape {list(array.shape)} for a batch of {batch}; its first dimension has to "
                    f"be the batch"
                )
        return outputs

    def start(self, record: Sequence[Array]) -> Started:
        """Start to compute one record, beside those that were started before; only if the model `overlaps`.

        Args:
            record: One array per entry of `self.inputs`, without a batch dimension, of its dtype or one that it holds.

        Returns:
            Its outputs, without a batch dimension.

        Raises:
            InferenceFailed: The engine failed; also from `Started.outputs`.
        """
        raise InferenceFailed(f"{self.engine} computes whole batches")

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Name engine and inputs in what an engine raises."""
        try:
            yield
        except ModelError:
            raise
        except Exception as error:
            raise InferenceFailed(f"{self.engine} failed: {cause(error)}; {self.describe()}") from error

    def warm_up(self, batch: int) -> list[Array] | None:
        """Compute a batch of zeros, so that the first request does not pay for what engines do lazily.

        Returns:
            The outputs; None if nothing was computed, because too little is known about the inputs.

        Raises:
            InferenceFailed: The model cannot compute zeros, although nothing had to be guessed.
        """
        inputs = dummy_inputs(self.inputs, batch)
        if inputs is None:
            return None
        try:
            return self.predict(inputs)
        except InferenceFailed:
            # Guesses may be wrong: a size of 1 too small for a convolution, an empty string no image file.
            if self.guesses:
                return None
            raise

    @property
    def guesses(self) -> bool:
        """Whether `warm_up` makes up sizes or texts that a real request may not have."""
        return any(spec.dtype == "str" or None in (spec.record_shape or ()) for spec in self.inputs)

    def describe(self) -> str:
        """Say in one line what the model takes, for error messages."""
        return f"the model expects {', '.join(map(str, self.inputs))}"

    @abstractmethod
    def close(self) -> None:
        """Free the engine's memory; the model cannot be used afterwards."""

    @abstractmethod
    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        """Do what `predict` promises; any exception will do."""

    def _run_fixed(self, inputs: Sequence[Array], batch: int) -> list[Array]:
        parts = [
            self._run_padded([array[start : start + batch] for array in inputs], batch)
            for start in range(0, len(inputs[0]), batch)
        ]
        return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

    def _run_padded(self, inputs: list[Array], batch: int) -> list[Array]:
        count = len(inputs[0])
        # Repeating the last record cannot raise an error that the record itself does not raise; zeros could.
        rows = np.minimum(np.arange(batch), count - 1)
        outputs = self._run(inputs if count == batch else [array[rows] for array in inputs])
        for index, array in enumerate(outputs):
            if not array.ndim or len(array) != batch:
                name = self.outputs[index].name
                raise ValueError(f"output {name!r} has shape {list(array.shape)} for a fixed batch of {batch}")
        return [array[:count] for array in outputs]


def dummy_inputs(specs: Sequence[TensorSpec], batch: int) -> list[Array] | None:
    """Make a batch of zeros (empty strings) that fits the specs; None if a shape is unknown.

    Args:
        specs: Inputs of a model; a free dimension becomes 1, an unknown dtype float32.
        batch: Size of the first dimension.
    """
    arrays = []
    for spec in specs:
        if spec.record_shape is None:
            return None
        shape = (batch, *(1 if size is None else size for size in spec.record_shape))
        arrays.append(np.full(shape, "", object) if spec.dtype == "str" else np.zeros(shape, spec.dtype or "float32"))
    return arrays


def common_batch(specs: Sequence[TensorSpec]) -> int | None:
    """The size of a batch that inputs of these shapes allow, None if any; the smallest where they disagree."""
    return min((spec.shape[0] for spec in specs if spec.shape and spec.shape[0] is not None), default=None)


def choose(kind: str, wanted: Sequence[str], available: Mapping[str, T]) -> list[T]:
    """Pick what is called by the wanted names.

    Args:
        kind: "input" or "output", for the message.
        wanted: Names in the order asked for; empty for all, in the model's order.
        available: What the model has.

    Raises:
        ModelError: The model has no such name; the message lists those it has.
    """
    for name in wanted:
        if name not in available:
            raise ModelError(f"the model has no {kind} {name!r}; its {kind}s are {', '.join(available) or 'unnamed'}")
    return [available[name] for name in wanted or available]


def writable(array: Array) -> Array:
    """Return the array itself if an engine can use its memory in place, else a copy."""
    return array if array.flags.c_contiguous and array.flags.writeable else array.copy()


def cause(error: BaseException) -> str:
    """Text of an engine's exception in one line; of a long one the beginning and the end, where the cause stands."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 800 else f"{text[:300]} ... {text[-500:]}"
