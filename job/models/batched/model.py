"""A model as the rest of the job sees it: the batch is the first axis of all that it takes and returns."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np

from cluster_serving.job.batch import gather
from cluster_serving.job.models.base import TRIAL_ERRORS, CallWatch, Model, StartedRecord, TensorSpec
from cluster_serving.job.models.batched.axes import InputReading, Reading, Whole, is_graph, readings, take
from cluster_serving.job.models.batched.comparison import alike
from cluster_serving.job.models.batched.kept import KeptProof
from cluster_serving.job.models.batched.proof import UNPROVEN, Axes, Draw, prove, without
from cluster_serving.job.models.batched.records import KINDS, LARGEST, WIDE, ZEROS, Record, generated, variants
from cluster_serving.job.models.batched.room import Room
from cluster_serving.job.models.graph.network import Graph
from cluster_serving.job.models.graph.walk import Finding, follow
from cluster_serving.job.models.wrapper import Wrapper
from cluster_serving.job.options import CPU, MOST_ROWS
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ModelError
from cluster_serving.protocol.inputs import Array

log = logging.getLogger(__name__)

_MOST_ATTEMPTS = 16
"""Number of batches of requests that may prove what could not be proven before."""

_MOST_GUESSES = 4
"""Number of sizes of weights that free sizes are guessed by."""

_MOST_BOUNDS = 64
_MOST_RANKS = 16
_MOST_ROWS = 8
_MOST_SIZES = 1024


class _Disproved(Exception):
    """An output does not have the batch where it had it before; the argument is its index."""


class BatchedModel(Wrapper):
    """A model whose batch is the first axis of each input and output, whatever it is in the model's own tensors.

    Records share a call if it is proven that no answer depends on the others. Otherwise each record is computed in a
    call of its own. An output without the batch belongs to that record as a whole.

    Args:
        model: Computes its own tensors. It is closed with this one.
        most: Most records of a call.
        renew: Loads the model once more, without what it may remember of the calls that have proven its axes.
        whole: See `Whole`.
        kept: Keeps the proof of the axes.
    """

    def __init__(
        self,
        model: Model,
        most: int = MOST_ROWS,
        *,
        renew: Callable[[], Model] | None = None,
        whole: Whole = None,
        kept: KeptProof | None = None,
    ) -> None:
        super().__init__(model)
        self._kept = kept
        self._trains = model.training_layer()
        # Such rows depend on each other by mistake.
        self._whole = False if self._trains and whole is None else whole
        self._most = most
        self._renew = renew
        self._raw_inputs = list(model.inputs)
        # By the ranks of the inputs where the model does not tell them, else by ().
        self._axes: dict[tuple[int, ...], Axes] = {}
        self._attempts = 0
        # Axes of the inputs, and ranks of their records → what the graph says about each output.
        self._findings: dict[tuple[tuple[int | None, int], ...], list[Finding]] = {}
        # Empty before it is read, and after the proof: its constants are the content of the file.
        self._graphs: list[Graph | None] = []
        known = all(spec.shape is not None for spec in model.inputs)
        shapes = {spec.name: spec.record_shape or () for spec in model.inputs if spec.name in model.anywhere}
        self._options = readings(model.inputs, model.symbols, shapes, self._whole) if known else []
        # Records share calls, and the batch is the first axis of all tensors: most models are so.
        self._is_plain = False
        self._varies = False
        # Sizes of an input's records → sizes of the outputs' records.
        self._sizes: dict[tuple[tuple[int, ...], ...], list[tuple[int, ...]]] = {}
        self._problem = ""
        self._ended = ""
        self._watch: CallWatch | None = None
        self._room = Room(model.engine, self.device == CPU)
        self.inputs = _inputs(model.inputs, self._options[0]) if known else [_partly(spec) for spec in model.inputs]
        self.outputs = list(model.outputs)

    @property
    def one_by_one(self) -> str:
        """See `Model.one_by_one`."""
        return self._problem or self._ended

    def expect(self, inputs: Sequence[TensorSpec]) -> None:
        """Set dtypes and shapes of inputs, batch first, that the engine does not tell."""
        self._raw_inputs = list(inputs)
        shapes = {spec.name: spec.record_shape or () for spec in inputs}
        self._options = self._options or readings(inputs, {}, shapes, self._whole)
        self.inputs = list(inputs)

    def prove(self) -> None:
        """Find the batch axes by computing random records, if the shapes of the inputs are known."""
        if not self._options:
            return
        if self._model.row_wise:
            first = (0,) * len(self._model.outputs)
            self._keep((), Axes(self._options[0], first, problem=self._model.one_by_one))
            return
        with self._held():
            found = self._kept.read((), self._model) if self._kept else None
            is_new = found is None and not (self._kept and self._kept.has_failed())
            if is_new:
                found = self._prove_randomly()
            elif found is not None:
                self._warn(found)
            if self._takes_graphs(found):
                # Random places of nodes are none. Requests prove it, which have whole tensors.
                self._options = [reading for reading in self._options if not reading.is_batched]
                self.inputs, found = _inputs(self._raw_inputs, self._options[0]), None
            if is_new:
                self._remember((), found)
        if found is not None:
            self._keep((), found)
            self._tell_room(found)
        elif self._trains:
            raise ModelError(
                f"the model fails on single records, as layer {self._trains!r} computes as in training: export it "
                "after model.eval()"
            )

    def _tell_room(self, found: Axes) -> None:
        """Say if a batch takes several calls."""
        sizes = [size for place in found.reading.places for size in place.record]
        if self._room.cost.each and not found.problem and None not in sizes:
            size = sum(math.prod(int(one or 0) for one in place.record) for place in found.reading.places)
            rows = self._room.most(size)
            if rows < self._most:
                self._room.tell(size, rows)

    def _takes_graphs(self, found: Axes | None) -> bool:
        reading = self._options[0] if found is None else found.reading
        is_shared = found is not None and not found.problem
        whole_too = any(not option.is_batched for option in self._options)
        return not is_shared and whole_too and is_graph(reading, self._raw_inputs, self._model.symbols)

    def _held(self) -> AbstractContextManager[None]:
        return self._kept.held() if self._kept else nullcontext()

    def _remember(self, ranks: tuple[int, ...], found: Axes | None) -> None:
        if self._kept:
            self._kept.write(ranks, found, self._model)

    def _prove_randomly(self) -> Axes | None:
        # An index beyond a table would end the process.
        careful = self._careful and (self.device != CPU or any(map(_has_indices, self._raw_inputs)))
        return self._prove(self._options, kinds=[kind for kind in KINDS if not (careful and kind == WIDE)])

    def sample(self, batch: int | None) -> list[Array] | None:
        """See `Model.sample`."""
        return self._model.sample(batch) if self._model.has_sample else super().sample(batch)

    @property
    def guesses(self) -> bool:
        """See `Model.guesses`."""
        return super().guesses or (self._model.has_sample and self._model.guesses)

    def warm_up(self, batch: int | None) -> list[Array] | None:
        """See `Model.warm_up`; zeros need not be a possible request, where others were computed."""
        if () not in self._axes:
            return super().warm_up(batch)
        if self._axes[()].changing:
            # It may remember this call.
            return None
        before = dict(self._axes), dict(self._sizes), self._kept
        self._kept = None
        try:
            return super().warm_up(batch)
        except TRIAL_ERRORS:
            return None
        finally:
            self.untried = ""
            # Guessed sizes tell nothing about those of requests.
            self._axes, self._sizes, self._kept = before
            self._keep((), self._axes[()])

    def predict(self, inputs: Sequence[Array]) -> list[Array]:
        """See `Model.predict`."""
        count = len(inputs[0])
        if self._is_plain and not self._ended and self._room.rows(inputs) >= count:
            outputs = self._compute(inputs, count)
            for array in outputs:
                if not array.ndim or len(array) != count:
                    break
            else:
                if not self._varies or self._other_size(inputs, outputs) is None:
                    if self._watch is not None and count > 1:
                        self._watch.shared(inputs, outputs)
                    return outputs
        ranks = self._ranks(inputs)
        axes = self._axes.get(ranks)
        if axes is None or not axes.certain:
            axes = self._learn(ranks, axes, inputs)
        if axes.problem or self._ended:
            return self._alone(ranks, inputs, count)
        try:
            outputs = self._together(axes, inputs, count)
        except _Disproved as disproved:
            self._disprove(ranks, axes, disproved.args[0])
            return self._alone(ranks, inputs, count)
        if self._varies and (index := self._other_size(inputs, outputs)) is not None:
            name = self._model.outputs[index].name
            self._doubt(ranks, replace(axes, problem=f"the sizes of output {name!r} follow the data", constants=()))
            return self._alone(ranks, inputs, count)
        if count == 1:
            return outputs
        constants = [(index, row) for index, row in enumerate(axes.constants) if row is not None]
        if any(outputs[index].shape[1:] != row.shape for index, row in constants):
            # What was the same for records of one size tells nothing about those of another.
            self._keep(ranks, replace(axes, problem=UNPROVEN, certain=False, constants=()))
            return self.predict(inputs)
        changed = [index for index, row in constants if (outputs[index] != row).any()]
        if changed:
            return self._compare(ranks, inputs, outputs, changed)
        if self._watch is not None:
            self._watch.shared(inputs, outputs)
        return outputs

    def watch_with(self, watch: CallWatch) -> None:
        """See `Model.watch_with`."""
        self._watch = watch
        watch.attach(self)

    @property
    def rounding(self) -> float:
        """See `Model.tolerance`."""
        return self._model.tolerance

    def end_sharing(self, reason: str) -> None:
        """Compute each record in a call of its own from now on; any thread may call it."""
        if not self._ended:
            log.warning("%s: %s; from now on each record is computed alone", self.engine, reason)
        self._ended = reason

    def alone(self, inputs: Sequence[Array]) -> list[Array]:
        """Compute records in calls of their own, after others of their ranks."""
        return self._alone(self._ranks(inputs), inputs, len(inputs[0]))

    def together(self, inputs: Sequence[Array]) -> list[Array]:
        """Compute records in shared calls, unwatched, after others of their ranks."""
        try:
            return self._together(self._axes[self._ranks(inputs)], inputs, len(inputs[0]))
        except _Disproved as disproved:
            name = self._model.outputs[disproved.args[0]].name
            raise InferenceFailed(f"output {name!r} does not follow the batch") from None

    def start(self, record: Sequence[Array]) -> StartedRecord:
        """See `Model.start`."""
        return self._model.start(record)

    def _ranks(self, inputs: Sequence[Array]) -> tuple[int, ...]:
        return () if self._options else tuple([array.ndim for array in inputs])

    def _prove(
        self, options: Sequence[Reading], kinds: Sequence[str] = KINDS, draws: Sequence[Draw] = ()
    ) -> Axes | None:
        model = self._model
        found = prove(
            self._trial,
            options,
            self._raw_inputs,
            lambda: model.outputs,
            model.tolerance,
            self._most,
            kinds,
            draws,
            self._careful,
            self._follow,
            self._weights(options),
            model.known,
            self._bounds(),
        )
        self._graphs.clear()
        keeps_state = model.keeps_state
        if found is not None and found.problem and keeps_state:
            # A state that counts calls may show after many of them.
            found = replace(found, changing=True)
        if self._renew is None or not (keeps_state or (found is not None and found.changing)):
            return found
        if found is not None:
            self._warn(found)
        # The answers of requests must not depend on these calls.
        model.close()
        self._model = self._renew()
        self._model.outputs = self._model.outputs or model.outputs
        return found

    def _warn(self, found: Axes) -> None:
        if found.changing:
            log.warning(
                "%s: %s; if it keeps a state, answers depend on the requests before, of any client: let the model take "
                "and return its state, or write a handler that keeps one for each client",
                self.engine,
                found.problem,
            )

    def _read(self) -> Graph | None:
        if not self._graphs:
            self._graphs.append(self._model.graph())
        return self._graphs[0]

    def _weights(self, options: Sequence[Reading]) -> list[int]:
        """Return sizes of the weights, where records leave sizes free."""
        graph = self._read() if any(None in place.record for place in options[0].places) else None
        return [] if graph is None else graph.matrix_sizes(_MOST_GUESSES, LARGEST)

    def _bounds(self) -> list[Array]:
        if self._careful:
            return []
        graph = self._read()
        return self._model.bounds(_MOST_BOUNDS) if graph is None else graph.bounds(_MOST_BOUNDS)

    def _follow(self, reading: Reading) -> list[Finding]:
        """Return what the graph of the model says about each output."""
        places = tuple([(place.axis, len(place.record)) for place in reading.places])
        if places not in self._findings:
            graph = self._read()
            axes = {spec.name: place.axis for spec, place in zip(self._raw_inputs, reading.places, strict=True)}
            found = {} if graph is None else follow(self._sized(graph, reading), axes)
            self._findings[places] = [found[spec.name] for spec in self._model.outputs if spec.name in found]
        found_for_all = len(self._findings[places]) == len(self._model.outputs)
        return self._findings[places] if found_for_all else []

    def _sized(self, graph: Graph, reading: Reading) -> Graph:
        """Return a graph with sizes of the inputs of which the engine tells none: configured ones, or free ones."""
        found = dict(graph.inputs)
        for spec, place in zip(self._raw_inputs, reading.places, strict=True):
            if found.get(spec.name, ()) is None and place.axis is not None:
                sizes = [None] * len(place.record) if spec.shape is None else [*spec.shape[1:]]
                found[spec.name] = [*sizes[: place.axis], None, *sizes[place.axis :]]
        return replace(graph, inputs=found)

    @property
    def _careful(self) -> bool:
        """True if a value beyond its range may end the process, on a GPU or in some kernels."""
        return self.device != CPU or self._model.careful

    def _try(self, inputs: Sequence[Array]) -> list[Array]:
        if self._model.fits is not None and not self._model.fits(inputs):
            raise InferenceFailed("the inputs do not fit each other")
        return self._model.predict(inputs)

    def _trial(self, inputs: Sequence[Array]) -> list[Array]:
        """Compute a trial, which tells nothing if the model refuses its values."""
        try:
            with self._room.measured(inputs, len(inputs[0]) if inputs[0].ndim else 1):
                return self._try(inputs)
        except InvalidInput as error:
            raise InferenceFailed(str(error)) from error

    def _learn(self, ranks: tuple[int, ...], known: Axes | None, inputs: Sequence[Array]) -> Axes:
        """Return what the records of a batch prove; raise the model's error if it computes none of them."""
        if known is not None and self._attempts >= _MOST_ATTEMPTS:
            return known
        with self._held():
            found = self._recalled(ranks, inputs)
            if found is None:
                found = self._tried(ranks, known, inputs)
                self._attempts += 1
                self._remember(ranks, found)
        self._keep(ranks, found)
        return found

    def _recalled(self, ranks: tuple[int, ...], inputs: Sequence[Array]) -> Axes | None:
        """Return what another slot, or one before, has proven with requests; None if nothing is certain."""
        axes = self._kept.peek(ranks) if self._kept else None
        if self._kept is None or axes is None or not axes.certain:
            return None
        if not self._model.outputs or not all(spec.dtype for spec in self._model.outputs):
            keeps_state = axes.changing or self._model.keeps_state
            if keeps_state or not axes.reading.has_ranks([array.shape[1:] for array in inputs]):
                return None
            # The engine tells its outputs after a call.
            self._try(axes.reading.join([[array[0, ...] for array in inputs]]))
        found = self._kept.read(ranks, self._model)
        if found is not None:
            self._warn(found)
        return found

    def _tried(self, ranks: tuple[int, ...], known: Axes | None, inputs: Sequence[Array]) -> Axes:
        """Return what trials with the records of a batch prove."""
        shapes = [array.shape[1:] for array in inputs]
        specs = [
            TensorSpec(spec.name, "str" if array.dtype == object else array.dtype.name, None)
            for spec, array in zip(self._raw_inputs, inputs, strict=True)
        ]
        options = [known.reading] if known is not None else self._options
        if not options:
            known_shapes = {spec.name: shape for spec, shape in zip(specs, shapes, strict=True)}
            options = readings(specs, {}, known_shapes, self._whole)
        # Records of these sizes, where the model leaves sizes free.
        sized = [reading.of_sizes(shapes) for reading in options if reading.has_ranks(shapes)]
        if not sized:
            raise InferenceFailed(f"the inputs have other numbers of dimensions; {self.describe()}")
        rows = [[array[index, ...] for array in inputs] for index in range(min(len(inputs[0]), _MOST_ROWS))]
        draws = [
            lambda reading: variants(reading, rows),
            lambda reading: generated(reading, specs, None, ZEROS, rows[0]),
            lambda reading: [rows[0]] * 4,
        ]
        found = self._prove(sized, draws=draws)
        if found is None:
            # The likeliest reading has the error that a client can understand.
            self._try(sized[0].join(rows[:1]))
            raise InferenceFailed(f"{self.engine} computed this record in one batch and failed on it in another")
        return replace(found, reading=next(one for one in options if one.of_sizes(shapes) == found.reading))

    def _compare(
        self, ranks: tuple[int, ...], inputs: Sequence[Array], outputs: Sequence[Array], changed: Sequence[int]
    ) -> list[Array]:
        """Compare outputs that were constant until now with those of each record alone, which are returned."""
        alone = self._alone(ranks, inputs, len(inputs[0]))
        axes = self._axes[ranks]
        wrong = [index for index in changed if not alike(alone[index], outputs[index], self._model.tolerance)]
        if wrong:
            name = self._model.outputs[wrong[0]].name
            problem = f"output {name!r} of a record depends on the others in its batch"
            self._doubt(ranks, replace(axes, problem=axes.problem or problem, constants=()))
        else:
            rows = tuple(None if index in changed else row for index, row in enumerate(axes.constants))
            axes = replace(axes, constants=rows if any(row is not None for row in rows) else ())
            self._keep(ranks, axes)
            self._remember(ranks, axes)
        return alone

    def _other_size(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> int | None:
        """Return the index of an output whose records have another size than before, for inputs of the same sizes."""
        key = tuple([array.shape[1:] for array in inputs])
        shapes = [array.shape[1:] for array in outputs]
        known = self._sizes.get(key)
        if known == shapes:
            return None
        if known is None:
            if len(self._sizes) >= _MOST_SIZES:
                self._sizes.clear()
            self._sizes[key] = shapes
            return None
        return next((at for at, pair in enumerate(zip(known, shapes, strict=True)) if pair[0] != pair[1]), None)

    def _doubt(self, ranks: tuple[int, ...], axes: Axes) -> None:
        log.warning("%s: %s; from now on each record is computed alone", self.engine, axes.problem)
        self._keep(ranks, axes)
        self._remember(ranks, axes)

    def _keep(self, ranks: tuple[int, ...], axes: Axes) -> None:
        """Remember axes, and describe inputs and outputs as they are with the batch first."""
        if ranks not in self._axes and len(self._axes) >= _MOST_RANKS:
            del self._axes[next(iter(self._axes))]
        self._axes[ranks] = axes
        places = axes.reading.places
        in_front = not any(place.axis for place in places) and not any(axes.outputs)
        every = None not in (*axes.outputs, *(place.axis for place in places))
        # Sizes that the model does not declare may follow the data.
        self._varies = any(spec.shape is None or spec.shape.count(None) > 1 for spec in self._model.outputs)
        self._is_plain = (
            not ranks
            and in_front
            and every
            and not (axes.problem or axes.squeezed or axes.reading.fixed or axes.constants)
        )
        self.overlaps = self._model.overlaps and not ranks and in_front and every
        self._problem = axes.problem
        if self._trains and axes.problem:
            self._problem += f", as layer {self._trains!r} computes as in training: export it after model.eval()"
        if axes.certain:
            self._model.fits = None
        if not ranks:
            self.inputs = _inputs(self._raw_inputs, axes.reading)
        self.outputs = [
            _output(spec, axis, axes.reading.fixed)
            for spec, axis in zip(self._model.outputs, axes.outputs, strict=True)
        ]

    def _disprove(self, ranks: tuple[int, ...], axes: Axes, index: int) -> Axes:
        """Note that an output has not the batch where it had it before."""
        axes = without(axes, index, self._model.outputs[index].name)
        self._doubt(ranks, axes)
        return axes

    def _together(self, axes: Axes, inputs: Sequence[Array], count: int) -> list[Array]:
        fixed = axes.reading.fixed
        if fixed is None:
            return self._in_calls(axes, inputs, count)
        parts = []
        for start in range(0, count, fixed):
            # Repeating the last record cannot raise an error that the record itself does not raise; zeros could.
            rows = np.minimum(np.arange(start, start + fixed), count - 1)
            outputs = self._call(axes, inputs if count == fixed else [array[rows] for array in inputs], fixed)
            parts.append([array[: count - start] for array in outputs])
        return parts[0] if len(parts) == 1 else [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

    def _in_calls(self, axes: Axes, inputs: Sequence[Array], count: int) -> list[Array]:
        """Compute a batch in one call, or in several ones that memory has room for."""
        parts: list[list[Array]] = []
        start = 0
        while start < count:
            rest = [array[start:] for array in inputs] if start else inputs
            rows = self._room.rows(rest)
            parts.append(self._call(axes, [array[:rows] for array in rest] if rows < len(rest[0]) else rest, rows))
            start += rows
        for index, arrays in enumerate(zip(*parts, strict=True)):
            if len({array.shape[1:] for array in arrays}) > 1:
                raise _Disproved(index)
        return parts[0] if len(parts) == 1 else [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]

    def _compute(self, inputs: Sequence[Array], count: int) -> list[Array]:
        with self._room.measured(inputs, count):
            return self._model.predict(inputs)

    def _call(self, axes: Axes, inputs: Sequence[Array], count: int) -> list[Array]:
        """Compute a batch in one call."""
        places = axes.reading.places
        outputs = self._compute([_moved(array, place) for array, place in zip(inputs, places, strict=True)], count)
        for index, axis in enumerate(axes.outputs):
            array = outputs[index]
            if index in axes.squeezed and count == 1:
                outputs[index] = array[np.newaxis]
            elif axis is None or array.ndim <= axis or array.shape[axis] != count:
                raise _Disproved(index)
            elif axis:
                outputs[index] = np.ascontiguousarray(np.moveaxis(array, axis, 0))
        return outputs

    def _alone(self, ranks: tuple[int, ...], inputs: Sequence[Array], count: int) -> list[Array]:
        """Compute each record in a call of its own."""
        rows = [self._record(ranks, [array[index, ...] for array in inputs]) for index in range(count)]
        return [
            np.stack(arrays) if len({array.shape for array in arrays}) == 1 else gather(arrays)
            for arrays in zip(*rows, strict=True)
        ]

    def _record(self, ranks: tuple[int, ...], record: Record) -> list[Array]:
        axes = self._axes[ranks]
        outputs = self._model.predict(axes.reading.join([record]))
        size = axes.reading.fixed or 1
        for index, axis in enumerate(axes.outputs):
            array = outputs[index]
            if axis is None or index in axes.squeezed:
                continue
            if array.ndim > axis and array.shape[axis] == size:
                outputs[index] = take(array, 0, axis)
            else:
                axes = self._disprove(ranks, axes, index)
        return outputs


def _has_indices(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(("int", "uint")) and spec.dtype != "uint8"


def _moved(array: Array, place: InputReading) -> Array:
    return array if place.axis == 0 else np.ascontiguousarray(np.moveaxis(array, 0, place.axis or 0))


def _inputs(specs: Sequence[TensorSpec], reading: Reading) -> list[TensorSpec]:
    return [
        replace(spec, shape=(None if place.axis is None else reading.fixed, *place.record))
        for spec, place in zip(specs, reading.places, strict=True)
    ]


def _partly(spec: TensorSpec) -> TensorSpec:
    """Return what is known of an input with the batch first, in a model with inputs of unknown shapes."""
    if spec.shape is None or spec.shape[:1] == (None,):
        return spec
    return replace(spec, shape=None if spec.shape else (None,))


def _output(spec: TensorSpec, axis: int | None, fixed: int | None) -> TensorSpec:
    if spec.shape is None:
        return spec
    if axis is None or axis >= len(spec.shape):
        return replace(spec, shape=(None, *spec.shape))
    return replace(spec, shape=(fixed, *spec.shape[:axis], *spec.shape[axis + 1 :]))
