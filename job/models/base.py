"""The interface of every engine: named tensors, one batched call, and errors that name the cause."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from cluster_serving.job.models import forked
from cluster_serving.job.options import CPU
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ModelError
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.slots import TensorSpec as TensorSpec  # for the engines, which import it from here

if TYPE_CHECKING:
    from cluster_serving.job.models.graph.network import Graph
    from cluster_serving.job.models.token_counter import TokenCounter

Layout = Literal["HWC", "CHW"]
"""Order of an image's axes: height, width, channel."""

ROUGH = 3e-2
"""Tolerance of models that compute in 16 bits."""

TRIAL_ERRORS = (InferenceFailed, InvalidInput)
"""Errors of a call with made-up values, such as zeros: the engine fails, or the model does not know a value."""


@dataclass(frozen=True, slots=True)
class StartedRecord:
    """A record whose computation has started.

    Attributes:
        outputs: Waits for the outputs and returns them, or raises `InferenceFailed`.
        wait: Waits at most the given seconds. Returns True if the computation has ended, successfully or not.
    """

    outputs: Callable[[], list[Array]]
    wait: Callable[[float], bool]


class CallWatch(Protocol):
    """What watches the calls that records share (`batched.watch.Watch`)."""

    @property
    def is_due(self) -> bool:
        """True if a record waits for `check`."""

    def attach(self, model: Any) -> None:
        """Watch over a model, in place of an earlier copy."""

    def check(self, call: Callable[[Callable[[], list[str]]], list[str]]) -> None:
        """Compute the record that waits again alone; see `Watch.check`."""

    def shared(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Note a call with several records, batch first."""


class Model(ABC):
    """A loaded model that computes one batch per call. One thread at a time may use it.

    An engine takes and returns its own tensors, wherever they have the batch. `BatchedModel` around it, and all models
    around that one, have it first.

    Attributes:
        engine: Name of the engine, for messages.
        layout: Order of the axes of images for models of this engine.
        inputs: Inputs of `predict`, in order.
        outputs: Outputs of `predict`, in order. Empty until the first call if only a call can tell.
        symbols: Input → symbol of each axis (empty for an axis without one), where the model has symbols.
        anywhere: Names of the inputs whose shapes have the batch first, although the model may have it elsewhere.
        row_wise: True if the engine promises that rows, the first axis of all tensors, do not depend on each other.
        careful: True if a value beyond its range may end the process, such as an index, or keep it in a loop.
        fits: Returns False for inputs by which `predict` may end the process; None if they are checked elsewhere.
        known: Texts and whole numbers that the model may treat in another way than other ones.
        tolerance: Relative difference between the answers of a record alone and in a batch that rounding explains.
        overlaps: True if `start` can be used.
        takes_missing: True if the model computes tables, in which a number may stand for a missing one.
        has_sample: True if the model knows values that it computes, and `sample` returns them.
        counter: Counts the tokens of texts; None without a tokenizer.
        has_pool: True if the engine has a pool of threads that does not survive a fork (`forked`).
        padded: Names of the inputs whose records may differ in size. With such inputs, `predict` also takes and returns
            object arrays (n,) with an array of each record (`job.batch.gather`).
        device: Device that computes, as `devices.Reported` names it; set by `load_model`.
        untried: Why `warm_up` has computed nothing; empty if it has.
    """

    layout: Layout = "CHW"
    symbols: Mapping[str, Sequence[str]] = MappingProxyType({})
    anywhere: frozenset[str] = frozenset()
    row_wise: bool = False
    careful: bool = False
    fits: Callable[[Sequence[Array]], bool] | None = None
    known: Sequence[str | int] = ()
    tolerance: float = 1e-3
    overlaps: bool = False
    takes_missing: bool = False
    has_sample: bool = False
    counter: TokenCounter | None = None
    has_pool: bool = False
    padded: frozenset[str] = frozenset()
    device: str = CPU
    untried: str = ""
    engine: str
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    # The model as its engine has it, whose memory is freed with the last reference.
    _loaded: Any = None

    def predict(self, inputs: Sequence[Array]) -> list[Array]:
        """Compute one batch.

        Args:
            inputs: One array per entry of `self.inputs`, in that order and of its dtype (`object` that holds `str` for
                "str").

        Returns:
            One array per output. The caller owns the arrays: no later call changes them.

        Raises:
            InferenceFailed: If the engine fails.
            InvalidInput: If the model does not know a value, such as another category.
            ModelError: If an output named in the options does not exist, where only a call can tell. If the process was
                forked, and the engine would wait for threads of the parent.
        """
        if self.has_pool:
            forked.check(self.engine)
        for spec, array in zip(self.inputs, inputs, strict=True):
            # Some engines would convert, and lose digits. Comparing dtypes is five times as fast as their names.
            if spec.dtype and array.dtype != ("O" if spec.dtype == "str" else spec.dtype):
                raise InferenceFailed(f"input {spec.name!r} is {array.dtype.name}; {self.describe()}")
        with self._failing():
            return self._run(inputs)

    def start(self, record: Sequence[Array]) -> StartedRecord:
        """Start to compute one record, beside those that were started before. Only for a model that `overlaps`.

        Args:
            record: One array per entry of `self.inputs`, without a batch dimension, of a dtype whose values fit it.

        Returns:
            The started record; its outputs have no batch dimension.

        Raises:
            InferenceFailed: If the engine fails. `StartedRecord.outputs` raises it too.
        """
        raise InferenceFailed(f"{self.engine} computes whole batches")

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Convert an engine's exception to `InferenceFailed` with the engine and the expected inputs."""
        try:
            yield
        except (ModelError, InvalidInput):
            raise
        except Exception as error:
            raise InferenceFailed(f"{self.engine} failed: {cause(error)}; {self.describe()}") from error

    def warm_up(self, batch: int | None) -> list[Array] | None:
        """Compute zeros, so that the first request does not pay for lazy work of the engine; see `dummy_inputs`.

        Returns:
            The outputs; None if nothing was computed, because too little is known about the inputs.

        Raises:
            InferenceFailed: If the model cannot compute zeros, although no size or text was guessed.
        """
        inputs = self.sample(batch)
        if inputs is None:
            self.untried = "its inputs are not known"
            return None
        try:
            return self.predict(inputs)
        except TRIAL_ERRORS as error:
            # Guesses may be wrong: a size of 1 too small for a convolution, an empty string no image file.
            if self.guesses:
                self.untried = str(error)
                return None
            raise

    def sample(self, batch: int | None) -> list[Array] | None:
        """Return inputs for `warm_up`: zeros; None if too little is known about the inputs."""
        return dummy_inputs(self.inputs, batch)

    @property
    def guesses(self) -> bool:
        """True if `warm_up` guesses sizes or texts that a real request may not have."""
        return any(
            spec.dtype == "str" or spec.record_shape is None or None in spec.record_shape for spec in self.inputs
        )

    @property
    def one_by_one(self) -> str:
        """Reason for computing one record a call; empty if records share calls."""
        return ""

    @property
    def keeps_state(self) -> bool:
        """True if calls have changed the model, or may do so; an engine that cannot tell says False."""
        return False

    def training_layer(self) -> str:
        """Return the name of a layer that computes as in training, with the mean of its batch; empty if none is."""
        return ""

    def graph(self) -> Graph | None:
        """Return the graph of the operators; None if nothing reads it."""
        return None

    def bounds(self, most: int) -> list[Array]:
        """Return up to so many (`most`) small arrays that the model compares numbers with, if no graph is read."""
        return []

    def describe(self) -> str:
        """Return one line about the inputs, for error messages."""
        return f"the model expects {', '.join(map(str, self.inputs))}"

    def count_into(self, counts: Counts) -> None:
        """Set the place for what the model counts; most models count nothing."""
        self._counts = counts

    def watch_with(self, watch: CallWatch) -> None:  # noqa: B027
        """Have the calls watched that records share; an engine's own model knows of none."""

    def close(self) -> None:
        """Free the engine's memory. The model cannot be used afterwards."""
        self._loaded = None

    @abstractmethod
    def _run(self, inputs: Sequence[Array]) -> list[Array]:
        """Compute a batch as `predict` does. Any exception may be raised."""


def dummy_inputs(specs: Sequence[TensorSpec], batch: int | None) -> list[Array] | None:
    """Return zeros (empty strings) that fit the specs; None if a shape is unknown.

    `batch` is the first size of each array; None for those of the specs. A free dimension becomes 1, an unknown dtype
    float32.
    """
    arrays = []
    for spec in specs:
        if spec.shape is None:
            return None
        sizes = spec.shape if batch is None else (batch, *spec.shape[1:])
        shape = tuple([1 if size is None else size for size in sizes])
        arrays.append(np.full(shape, "", object) if spec.dtype == "str" else np.zeros(shape, spec.dtype or "float32"))
    return arrays


_OWN_LINES = re.compile(r"^(?:Exception from|Check '.*' failed at) \S+\.[ch]pp:\d+:?$", re.MULTILINE)
"""Lines in which OpenVINO names files of its own sources, before the line of the cause."""


def cause(error: BaseException) -> str:
    """Return an engine's exception as one line. A long text is cut in the middle, as the cause stands at its end."""
    text = " ".join(_OWN_LINES.sub("", str(error)).split()) or type(error).__name__
    return text if len(text) <= 800 else f"{text[:300]} ... {text[-500:]}"
