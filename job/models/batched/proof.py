"""Proof of the batch axes of a model: compute different records alone and together, and compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.job.models.batched.axes import Reading
from cluster_serving.job.models.batched.budget import Budget
from cluster_serving.job.models.batched.comparison import OutputComparison, Seen, Together, equal
from cluster_serving.job.models.batched.growth import Growth, limit
from cluster_serving.job.models.batched.influence import Calls, Influence
from cluster_serving.job.models.batched.records import COUNTS, KINDS, SIGNED, Record, generated, sizes
from cluster_serving.job.models.graph.walk import NOTHING, Finding
from cluster_serving.protocol.errors import InferenceFailed
from cluster_serving.protocol.inputs import Array

Compute = Callable[[Sequence[Array]], list[Array]]
"""Computes the model's own tensors, as `Model.predict`."""

Draw = Callable[[Reading], list[Record]]
"""Makes four records of a reading; the last one is unlike the others."""

Follow = Callable[[Reading], Sequence[Finding]]
"""Returns what the graph of the model says about each output; nothing if it is not known."""

# Records of each call in which they are together. The last one differs from that before it in one record.
_TOGETHER = ((0, 1), (2, 0, 1), (2, 0, 3))
_BRIEFLY = ((1, 0),)

UNPROVEN = "no request has proven yet that records may share a call"
"""Problem of a model about which nothing is certain."""

_MOST_S = 3.0
"""Seconds after which no further reading with a batch is tried, and no further size if the model refuses all."""

_REFUSED_S = 0.3
"""Seconds after which no further reading with a batch is tried if the model refuses all records so far."""

_TOGETHER_MOST = 4
"""Calls together, and what is around them, take this many times the memory of a record alone."""

_SURE = 3
"""Number of draws that a model has to compute before a record is taken for whole tensors."""

_AGAIN = 4
"""Number of times that each record is computed again where rows differ, in search of random numbers."""

_BUDGET_S, _PROVEN_S = 1.0, 0.2
"""Seconds after which no more is tried than needed; with a graph that proves it, kernels alone are tried."""

_BRIEF_S, _SLOW_S = 0.1, 0.5
"""Seconds of a record from which one call with others is tried if the graph proves the batch, and otherwise none.

The usual proof computes 21 records or more. Sharing calls saves little where one keeps a processor busy for so long.
"""


@dataclass(frozen=True, slots=True)
class Axes:
    """Where a model has the batch.

    Attributes:
        reading: How its inputs are read.
        outputs: For each output, the axis of the batch; None if the whole output belongs to the call.
        squeezed: Indices of outputs that lose the axis in a batch of one.
        problem: Reason for computing one record a call; empty if records share calls.
        certain: Further records cannot change the problem.
        constants: For each output, the row that all records have which were tried; None if it is proven. Nothing tells
            such rows apart, and sharing a call is right for as long as this is so. Empty if all are proven.
        changing: The same record has other outputs in each call.
    """

    reading: Reading
    outputs: tuple[int | None, ...]
    squeezed: frozenset[int] = frozenset()
    problem: str = ""
    certain: bool = True
    constants: tuple[Array | None, ...] = ()
    changing: bool = False


class _Trial:
    """A reading of the inputs that is being tried."""

    def __init__(self, compute: Compute, reading: Reading, tolerance: float, follow: Follow) -> None:
        self.reading = reading
        self._compute = compute
        self._follow = follow
        self._tolerance = tolerance
        self.seen: list[list[Seen]] = []
        self._differ: list[bool] = []
        self._records: Sequence[Record] = ()
        self._alone_before: Sequence[Sequence[Array]] = ()
        self._limit = limit()
        self.grown = 0
        """Most bytes by which memory grew while a record was computed alone."""
        self._influenced: int | None = None
        self._findings: Sequence[Finding] | None = None
        self._refused = 0
        self.shares = True
        """False if the model computes a record alone, and refuses several."""
        self.is_random = False
        """True if the same record has different outputs in each call."""
        self.is_slow = False
        """True if records take too long to try them together."""
        self.is_brief = False
        """True if they do, and the graph proves that they may be together: one call is tried."""

    def add(self, records: Sequence[Record]) -> bool:
        """Compute a draw; return False if the model refuses its records, which proves nothing."""
        try:
            with self._measured():
                alone = [self._alone(records[0])]
            if not self.has_room(1):
                return False
            # The first call may have prepared the next.
            brief, slow = Budget(_BRIEF_S), Budget(_SLOW_S)
            alone.append(self._alone(records[1]))
            can_end = self._may_be_short()
            if self.seen and can_end and not slow.has_time():
                return False
            can_end = can_end and not self.seen
            is_brief = can_end and not brief.has_time() and self._graph_proves()
            is_slow = can_end and not is_brief and not slow.has_time()
            self.is_brief |= is_brief
            self.is_slow |= is_slow
            is_short = is_brief or is_slow
            if not is_short:
                alone.append(self._alone(records[2]))
        except InferenceFailed:
            self._refused += 1
            return False
        calls = [] if is_slow else self._calls(records, _BRIEFLY if is_brief else _TOGETHER)
        comparisons = [
            OutputComparison(
                [outputs[index] for outputs in alone],
                [Together(order, outputs[index]) for order, outputs in calls],
                self.reading.fixed,
                self._tolerance,
            )
            for index in range(len(alone[0]))
        ]
        found = [one.seen() if self.reading.is_batched else one.nowhere() for one in comparisons]
        self.seen.append(found)
        # Of indices, some networks make nearly the same of the smallest two.
        has_digits = any(array.dtype.kind in "fc" for array in records[0])
        if not self._records or not (has_digits or equal((records[0][0], records[1][0]))):
            self._records = records
            self._alone_before = alone
        self._differ.append(any(not np.array_equal(*pair) for pair in zip(*records[:2], strict=True)))
        if is_brief and not self.is_proven():
            self.is_slow = True
        if not is_short and (len(self.seen) == 1 or any(one.agrees is False for one in found)):
            self.is_random |= self._changes(records[0], alone[0])
        return True

    @contextmanager
    def _measured(self) -> Iterator[None]:
        """Note how far memory grows; a model may refuse a record after it has taken much."""
        growth = Growth()
        try:
            with growth:
                yield
        finally:
            self.grown = max(self.grown, growth.bytes)

    def _changes(self, record: Record, before: Sequence[Array] | None = None) -> bool:
        """Return True if a record has other outputs the next time."""
        once = self._alone(record) if before is None else before
        return not all(map(equal, zip(once, self._alone(record), strict=True)))

    def look_for_influence(self, most: int, careful: bool, known: Sequence[str | int], bounds: Sequence[Array]) -> None:
        """Search for an output with a row that depends on other records."""
        axes = [axis for axis in self.axes() if axis is not None]
        if None in [place.axis for place in self.reading.places] or self.is_random or self.is_brief:
            return
        call = Calls(self._compute, self.reading, axes, self.squeezed())
        sizes = sorted({2, 3, max(2, most)}) if self.reading.fixed is None else [self.reading.fixed]
        budget = Budget(_PROVEN_S if self.is_proven() else _BUDGET_S)
        search = Influence(
            call, self._records, sizes, self._tolerance, careful, self.is_proven(), known, bounds, self._alone_before
        )
        self._influenced = search.find(budget.has_time)
        if self._influenced is not None:
            # A few numbers that are random rarely differ.
            self.is_random = any(self._changes(record) for record in self._records[:3] for _ in range(_AGAIN))

    def finding(self, index: int) -> Finding:
        """Return what the graph says about an output, if the trials have found the batch at the same axis."""
        axis = self.axes()[index]
        if self._findings is None:
            found = self._follow(self.reading) if self.reading.is_batched and self.reading.fixed is None else ()
            self._findings = [*found] or [NOTHING] * len(self.seen[0])
        one = self._findings[index]
        fits = axis is not None and index not in self.squeezed() and one.axis in (axis, None)
        return one if fits else NOTHING

    def is_proven(self) -> bool:
        """Return True if the graph proves all outputs, whatever the values and the sizes."""
        return all(self.finding(index).axis is not None for index in range(len(self.seen[0])))

    def mixer(self) -> str:
        """Return the operator that mixes the rows of an output, if the graph tells; else nothing."""
        found = (self.finding(index).mixed_by for index in range(len(self.seen[0])))
        return next(filter(None, found), "")

    def has_room(self, times: float) -> bool:
        """Return True if the memory has room for records of so many times the size."""
        # The memory of a table of distances, or of attention, grows with the square of the elements.
        free = max(place.record.count(None) for place in self.reading.places)
        return self.grown * _TOGETHER_MOST * times ** (2 * free) <= self._limit

    def follows(self) -> bool:
        """Return True if all outputs follow the batch, and no draw has refuted it."""
        return (
            self.shares
            and not self.is_slow
            and all(axis is not None for axis in self.axes())
            and False not in self.agreements()
        )

    def is_doubtful(self) -> bool:
        """Return True if nothing names the batch, and the few records that are computed prove nothing."""
        return not self.reading.is_named and self._refused > 0 and None in self._drawn()

    def differs(self) -> bool:
        """Return True if the rows of an output are others together than alone, in all draws that tell.

        Where a state of the whole call goes in and comes out, one draw is enough: the rows are the steps of a sequence.
        """
        rows = [[one for one in row if one.agrees is not None] for row in zip(*self.seen, strict=True)]
        enough = any if self._has_state() else all
        return not self.is_random and any(row and enough(one.differs for one in row) for row in rows)

    def _has_state(self) -> bool:
        """Return True if an input without the batch has the shape of an output without it."""
        states = {place.record for place in self.reading.places if place.axis is None and place.record}
        axes = zip(self.axes(), zip(*self.seen, strict=True), strict=True)
        return any(axis is None and row[0].shapes <= states for axis, row in axes)

    def tells_all(self) -> bool:
        """Return True if something is proven or refuted about each output."""
        return None not in self.agreements()

    def axes(self) -> list[int | None]:
        """Return the axis of each output, which all draws have in common."""
        found = [{(one.axis, one.squeezed) for one in row} for row in zip(*self.seen, strict=True)]
        return [next(iter(axes))[0] if len(axes) == 1 else None for axes in found]

    def squeezed(self) -> frozenset[int]:
        """Return the indices of the outputs that lose the axis in a batch of one."""
        return frozenset(index for index, row in enumerate(zip(*self.seen, strict=True)) if row[0].squeezed)

    def agreements(self) -> list[bool | None]:
        """Return for each output: True if draws or the graph prove it, False if one refutes it, None if none tells."""
        found = self._drawn()
        if self._influenced is not None:
            found[self._influenced] = False
        return found

    def _drawn(self) -> list[bool | None]:
        """Return `agreements` without the search for influence."""
        found: list[bool | None] = []
        for index, row in enumerate(zip(*self.seen, strict=True)):
            told = [one.agrees for one in row if one.agrees is not None]
            # Between labels that are nearly equal, rounding may decide.
            allowed = 0 if row[0].is_float or any(one.mixes for one in row) else (len(told) - 1) // 2
            agrees = told.count(False) <= allowed if told else None
            finding = self.finding(index)
            if finding.mixed_by or finding.may_mix:
                agrees = False
            elif agrees is None and finding.axis is not None:
                agrees = True
            found.append(agrees)
        return found

    def constants(self) -> list[Array | None]:
        """Return for each output the row that all records have, if they differ and it does not; else None."""
        draws = [found for found, differ in zip(self.seen, self._differ, strict=True) if differ]
        found: list[Array | None] = []
        for row in zip(*draws, strict=True):
            first = row[0].constant
            # Rows without a value are those of any model.
            same = (
                first is not None
                and bool(first.size)
                and all(one.constant is not None and np.array_equal(first, one.constant) for one in row)
            )
            found.append(first if same else None)
        return found or [None] * len(self.seen[0])

    def is_constant(self) -> bool:
        """Return True if the sizes of the outputs depend neither on the batch nor on the data."""
        shapes = [{shape for one in row for shape in one.shapes} for row in zip(*self.seen, strict=True)]
        return all(len(known) == 1 and 0 not in next(iter(known)) for known in shapes)

    def _may_be_short(self) -> bool:
        """Return True if a name tells which axis is the batch: otherwise, calls together tell it."""
        return self.reading.is_batched and self.reading.fixed is None and self.reading.is_named

    def _graph_proves(self) -> bool:
        found = self._follow(self.reading)
        return bool(found) and all(one.axis is not None for one in found)

    def _alone(self, record: Record) -> list[Array]:
        return self._compute(self.reading.join([record]))

    def _calls(
        self, records: Sequence[Record], orders: Sequence[tuple[int, ...]]
    ) -> list[tuple[tuple[int, ...], list[Array]]]:
        """Compute records together; return the records of each call, by index, and its outputs."""
        fixed = self.reading.fixed
        if fixed == 1 or not self.reading.is_batched:
            return []
        if fixed is not None:
            first = [index % 3 for index in range(fixed)]
            orders = (tuple(first), (*first[1:], first[0]), tuple(3 if index == 1 else index for index in first))
        calls: list[tuple[tuple[int, ...], list[Array]]] = []
        for order in orders:
            try:
                calls.append((order, self._compute(self.reading.join([records[index] for index in order]))))
            except InferenceFailed:
                if 3 not in order:
                    self.shares = False
                    return []
        return calls


def prove(
    compute: Compute,
    options: Sequence[Reading],
    inputs: Sequence[TensorSpec],
    outputs: Callable[[], Sequence[TensorSpec]],
    tolerance: float,
    most: int,
    kinds: Sequence[str] = KINDS,
    draws: Sequence[Draw] = (),
    careful: bool = False,
    follow: Follow = lambda reading: (),
    weights: Sequence[int] = (),
    known: Sequence[str | int] = (),
    bounds: Sequence[Array] = (),
) -> Axes | None:
    """Find the batch axes of a model.

    Args:
        compute: See `Compute`.
        options: Ways to read the inputs, the likeliest first.
        inputs: Inputs of the model.
        outputs: Returns the outputs of the model, once it has computed.
        tolerance: Largest relative difference between answers that rounding explains.
        most: Most records of a call.
        kinds: Kinds of random records, which are tried with two guesses of free sizes.
        draws: Records to try instead.
        careful: A value beyond its range may end the process, or keep it in a loop.
        follow: See `Follow`.
        weights: Sizes of the weights, which free sizes may have to be.
        known: See `Model.known`.
        bounds: See `Graph.bounds`.

    Returns:
        The axes; None if the model computes none of the records.
    """
    patience, budget = Budget(_MOST_S), Budget(_BUDGET_S)
    first: _Trial | None = None
    others: Budget | None = None
    for reading in options:
        # Of many inputs, each may be the one without a batch. Requests tell, too.
        if others is not None and first is None and reading.is_batched and not others.has_time():
            continue
        # The last reading, of whole tensors, is right for every model, and no other one is for some.
        if first is not None and reading.is_batched and not patience.has_time():
            continue
        if first is not None and not (reading.is_batched or _is_one_record(first, outputs()) or first.is_doubtful()):
            continue
        trial = _Trial(compute, reading, tolerance, follow)
        if draws:
            for draw in draws:
                if not trial.seen or budget.has_time():
                    trial.add(draw(reading))
        else:
            own = budget if reading.is_batched else Budget(_BUDGET_S)
            of_refusals = others if others is not None and reading.is_batched else Budget(_MOST_S)
            _try_random(trial, inputs, kinds, weights, own.has_time, of_refusals)
        if not trial.seen:
            others = None if draws else others or Budget(_REFUSED_S)
            continue
        if reading.is_batched:
            if reading.fixed == 1 or trial.is_slow:
                return _axes(trial, inputs, outputs())
            if trial.follows():
                trial.look_for_influence(most, careful, known, bounds)
                if trial.follows() and (draws or len(options) == 1 or not trial.is_doubtful()):
                    return _axes(trial, inputs, outputs())
            # Without a proof, random sizes may fit a wrong reading only. Those of requests fit the right one.
            if draws or reading == options[0]:
                first = first or trial
        elif first is not None:
            # A model takes more records as what they are.
            if _is_one_record(first, outputs()) or len(trial.seen) > len(first.seen):
                return _axes(trial, inputs, outputs(), first.mixer())
        elif draws or len(options) == 1 or len(trial.seen) >= _SURE:
            # Some values alone may be refused for other reasons than their number of dimensions.
            return _axes(trial, inputs, outputs())
    return None if first is None else _axes(first, inputs, outputs())


def _try_random(
    trial: _Trial,
    inputs: Sequence[TensorSpec],
    kinds: Sequence[str],
    weights: Sequence[int],
    has_time: Callable[[], bool],
    patience: Budget,
) -> None:
    """Try records of each kind and size; `patience`: time for sizes while the model refuses all."""
    guesses = 0
    before = 1
    for size in sizes(trial.reading, weights):
        made = 0
        if size is not None:
            if not trial.has_room(max(1, size / before)):
                return
            before = size
        for kind in kinds:
            if made and (kind == COUNTS or trial.is_proven() or (kind == SIGNED and trial.tells_all())):
                continue
            # Sizes that follow the data are others with other kinds.
            if not made or has_time():
                made += trial.add(generated(trial.reading, inputs, size, kind))
            if trial.is_slow or trial.is_brief or not trial.has_room(1):
                return
        guesses += made > 0
        # A proof of the graph holds for all sizes.
        if guesses == 2 or (guesses and trial.is_proven()) or not (has_time() if guesses else patience.has_time()):
            return


def _is_one_record(trial: _Trial, outputs: Sequence[TensorSpec]) -> bool:
    """Return True if what looks like a batch is a part of one record.

    Its rows depend on each other, and no name says that it is a batch; or outputs of known sizes do not follow it.
    """
    reading = trial.reading
    if reading.fixed is not None:
        return not reading.is_named
    if not reading.is_named and trial.differs():
        return True
    free = any(spec.shape is not None and None in spec.shape for spec in outputs)
    return trial.shares and not free and trial.is_constant()


def _axes(trial: _Trial, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], mixer: str = "") -> Axes:
    axes = trial.axes()
    if trial.reading.fixed == 1 and not any(None in place.record for place in trial.reading.places):
        # All inputs are of known sizes: an output of another size follows the data, and may be 1 by chance.
        axes = [None if spec.shape and spec.shape[0] != 1 else axis for axis, spec in zip(axes, outputs, strict=True)]
    problems = [*_problems(trial, axes, inputs, [spec.name for spec in outputs], mixer)]
    agreements = trial.agreements()
    constants = [None if told else row for told, row in zip(agreements, trial.constants(), strict=True)]
    pairs = zip(agreements, constants, strict=True)
    unknown = not problems and any(told is None and row is None for told, row in pairs)
    if unknown:
        problems.append(UNPROVEN)
    watched = () if problems or not any(row is not None for row in constants) else tuple(constants)
    return Axes(
        trial.reading,
        tuple(axes),
        trial.squeezed(),
        problems[0] if problems else "",
        not unknown,
        watched,
        trial.is_random,
    )


def _problems(
    trial: _Trial, axes: Sequence[int | None], inputs: Sequence[TensorSpec], names: Sequence[str], mixer: str
) -> Iterator[str]:
    """Yield the reasons for which records cannot share a call; `mixer` names an operator that mixes the rows."""
    reading = trial.reading
    if trial.is_random:
        yield "its outputs differ from call to call: it draws random numbers, or keeps a state between calls"
    if not reading.is_batched:
        yield f"its inputs have no batch dimension{mixer and f', as {mixer} mixes the rows of their axes'}"
    for place, spec in zip(reading.places, inputs, strict=True):
        if place.axis is None:
            yield f"input {spec.name!r} has no batch dimension"
    if reading.fixed == 1:
        yield "its batch has a fixed size of 1"
    elif not trial.shares:
        yield "it refuses several records in a call"
    elif trial.is_slow:
        yield "a record takes too long to try several in a call"
    for index, (axis, name, agrees) in enumerate(zip(axes, names, trial.agreements(), strict=True)):
        if axis is None:
            yield f"output {name!r} does not follow the batch"
        elif agrees is False:
            finding = trial.finding(index)
            depends = "may depend" if finding.may_mix else "depends"
            operator = finding.mixed_by or finding.may_mix
            by = f" ({operator} mixes them)" if operator else ""
            yield f"output {name!r} of a record {depends} on the others in its batch{by}"


def without(axes: Axes, index: int, name: str) -> Axes:
    """Return the axes of a model one of whose outputs was seen not to follow the batch."""
    outputs = tuple(None if at == index else axis for at, axis in enumerate(axes.outputs))
    problem = f"output {name!r} does not follow the batch"
    return replace(axes, outputs=outputs, squeezed=axes.squeezed - {index}, problem=axes.problem or problem)
