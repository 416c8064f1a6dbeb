"""What a predictor computes with: a model, or the user's own code around models (`handlers.handled`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, NamedTuple, Protocol, TypeVar

from cluster_serving.job.batch import Arrays, BatchMemory, gather_records, group_by_shape, merge, search, split
from cluster_serving.job.computation import Steps
from cluster_serving.job.encoding import Counter, Encoding
from cluster_serving.job.models.base import TRIAL_ERRORS, Layout, Model, StartedRecord, TensorSpec, dummy_inputs
from cluster_serving.job.options import ImageOptions, ModelOptions
from cluster_serving.job.pieces import Generating
from cluster_serving.protocol.errors import ModelError, ServingError
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.inputs import Array

T = TypeVar("T")


class Caller(Protocol):
    """Calls a function with the copy that computes; see `copies.Copies.call`."""

    def __call__(self, function: Callable[[Any], T], requests: int = 1, usual: bool = True) -> T:
        """Return the result of the function."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a servable is loaded from.

    Attributes:
        model: Options of the model.
        secret: Secret and salt of an encrypted model.
        image: Options of encoded images.
        most: Most records of a call.
        job: Name of the job, for a handler.
        version: Version of the job, for a handler.
        counts: Place of figures.
    """

    model: ModelOptions
    secret: tuple[str, str]
    image: ImageOptions
    most: int
    job: str
    version: str
    counts: Counts


class Way(NamedTuple):
    """A way to compute the records of a model folder; `ways` lists all.

    Attributes:
        encoding: Makes the encoding of the outputs, of filters; raises `ModelError` for an unknown filter.
        in_rows: True if records may be rows of arrays (`rows`).
        load: Loads a copy, and warms it up.
    """

    encoding: Callable[[str], Encoding]
    in_rows: bool
    load: Callable[[], Servable]


class Servable(ABC):
    """Loaded code that computes records. One thread at a time may use it.

    The outputs of a record have the form that its `encoding` reads.

    Attributes:
        encoding: Encoding of the outputs.
        engine: Name for messages.
        inputs: Inputs of a record; None if the model takes any inputs.
        layout: Order of the axes of images.
        model: The only model, which computes the records; None if a handler's own code does.
        is_direct: Records are the inputs of this model; images become its dtype when they join a batch.
        zeros: Outputs of a batch of one record of zeros, or of their shape; None if they are not known.
        untried: Why no record has been computed, not even to try the model; empty if one has.
        counter: Counts the tokens of texts; None without a tokenizer.
    """

    encoding: type[Encoding] = Encoding
    engine: str
    inputs: Sequence[TensorSpec] | None
    layout: Layout
    model: Model | None
    is_direct: bool = True
    zeros: Sequence[Any] | None = None
    untried: str = ""
    counter: Counter | None = None

    @property
    def outputs(self) -> list[TensorSpec]:
        """Outputs; empty if nothing tells them."""
        return self.model.outputs if self.model else []

    @property
    def device(self) -> str:
        """Devices that compute, separated by commas; empty if nothing tells."""
        return self.model.device if self.model else ""

    @property
    def one_by_one(self) -> str:
        """Reason for computing one record a call; empty if records share calls."""
        return self.model.one_by_one if self.model else ""

    @property
    def overlaps(self) -> bool:
        """True if `start` can be used."""
        return self.model is not None and self.model.overlaps

    def generated(self, call: Caller, encoding: Encoding) -> Generating | None:
        """Return what makes answers in pieces; None if all answers are whole."""
        return None

    @abstractmethod
    def steps(
        self,
        call: Caller,
        names: Sequence[str],
        records: Sequence[Arrays],
        batched: bool,
        failure: ServingError | None = None,
    ) -> Steps[Any]:
        """Compute records, and search for those that make others fail; see `batch.search`.

        Args:
            call: Calls a function with the copy that computes.
            names: Names of the inputs.
            records: Values of the inputs of each record.
            batched: Records have a batch dimension of their own.
            failure: That of a call with all of them, which is not repeated then.

        Returns:
            Outputs or error by index of the record; None after a call that has failed.
        """

    @abstractmethod
    def start(self, names: Sequence[str], record: Arrays) -> StartedRecord:
        """Start to compute a record beside those that were started before; raise `ServingError` if that fails."""

    @abstractmethod
    def finish(self, outputs: Sequence[Any]) -> Any:
        """Return the outputs of a record, or its error, from what `StartedRecord.outputs` has returned."""

    @abstractmethod
    def close(self) -> None:
        """Free the memory."""


class ServedModel(Servable):
    """A model of one of the engines, which is loaded.

    Raises:
        ModelError: If the model fails on a batch of zeros.
    """

    model: Model

    def __init__(self, model: Model, counts: Counts) -> None:
        self.model = model
        self.model.count_into(counts)
        try:
            zeros = self.model.warm_up(batch=1)
        except TRIAL_ERRORS as error:
            raise ModelError(f"the model fails on a batch of zeros: {error}") from error
        self.zeros = self._imagined() if zeros is None else zeros
        self.untried = self.model.untried
        self.engine, self.layout, self.inputs = self.model.engine, self.model.layout, self.model.inputs
        self._memories = [BatchMemory(spec.numpy_dtype) for spec in self.model.inputs]
        self.counter = self.model.counter

    def steps(
        self,
        call: Caller,
        names: Sequence[str],
        records: Sequence[Arrays],
        batched: bool,
        failure: ServingError | None = None,
    ) -> Steps[Any]:
        """See `Servable.steps`; records of one shape share a call, and those of other shapes if the model pads."""

        def run(records: Sequence[Arrays]) -> list[Any]:
            return call(methodcaller("compute", records, batched), len(records))

        groups = [] if self.model.padded or len(records) == 1 else group_by_shape(records)
        return search(run, records, failure) if len(groups) < 2 else _in_groups(run, records, groups)

    def compute(self, records: Sequence[Arrays], batched: bool) -> list[Any]:
        """Compute records in one call of the model; return the outputs of each."""
        model = self.model
        rows = [record[0].shape[0] if batched else 1 for record in records]
        inputs = gather_records(records, batched) if model.padded else merge(records, self._memories, batched)
        outputs = model.predict(inputs)
        self.untried = ""
        names = self._names()
        return [(names, row) for row in split(outputs, rows, batched, fill=bool(model.padded or not model.one_by_one))]

    def start(self, names: Sequence[str], record: Arrays) -> StartedRecord:
        """See `Servable.start`."""
        return self.model.start(record)

    def finish(self, outputs: Sequence[Any]) -> Any:
        """See `Servable.finish`."""
        self.untried = ""
        return self._names(), outputs

    def close(self) -> None:
        """Free the memory of the model."""
        self.model.close()

    def _imagined(self) -> list[Array] | None:
        """Return zeros that fit the outputs, of a model that has computed nothing; None if too little is known."""
        outputs = self.model.outputs
        return dummy_inputs(outputs, batch=1) if outputs and all(spec.dtype for spec in outputs) else None

    def _names(self) -> list[str]:
        # After each call: some models name their outputs at the first call only.
        return [spec.name for spec in self.model.outputs]


def _in_groups(
    run: Callable[[Sequence[Arrays]], list[Any]], records: Sequence[Arrays], groups: Sequence[Sequence[int]]
) -> Steps[Any]:
    for members in groups:
        for step in search(run, [records[index] for index in members]):
            yield step and {members[position]: result for position, result in step.items()}
