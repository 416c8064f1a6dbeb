"""Where the inputs and outputs of a model may have the batch, from its shapes and symbols alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from cluster_serving.job.models.base import TensorSpec
from cluster_serving.protocol.inputs import Array

Shape = tuple[int | None, ...]

Whole = bool | tuple[str, ...] | None
"""What the configuration says of inputs: True if all are whole tensors of one record, the names of those that are, or
False if all have a batch. None: names and calls tell (`ModelOptions.whole_inputs`)."""

_BATCH = re.compile(r"(?i)n|b|bs|bsz|(.*[^a-z])?batch(_?size)?([^a-z].*)?")
"""Symbols that name the batch: `N`, `batch`, `batch_size`, `input_batch_1`."""

_MOST_READINGS = 24
_MOST_COMBINATIONS = 4096


class InputReading(NamedTuple):
    """A way to read one input.

    Attributes:
        axis: Axis of the batch in the model's tensor; None if a record is the whole tensor.
        record: Shape of a record, without the batch.
    """

    axis: int | None
    record: Shape


@dataclass(frozen=True, slots=True)
class Reading:
    """A way to read all inputs of a model.

    Attributes:
        places: Place of each input.
        fixed: Size of the batch, if the model takes no other.
        is_named: The symbol of the batch says so, or the engine has no other place for it.
    """

    places: tuple[InputReading, ...]
    fixed: int | None = None
    is_named: bool = False

    @property
    def is_batched(self) -> bool:
        """True if an input has a batch."""
        return any(place.axis is not None for place in self.places)

    def has_ranks(self, shapes: Sequence[Shape]) -> bool:
        """Return True if records of these shapes have as many dimensions as those of the reading."""
        return all(len(place.record) == len(shape) for place, shape in zip(self.places, shapes, strict=True))

    def of_sizes(self, shapes: Sequence[Shape]) -> Reading:
        """Return the reading for records of these shapes."""
        places = [InputReading(place.axis, shape) for place, shape in zip(self.places, shapes, strict=True)]
        return replace(self, places=tuple(places))

    def join(self, records: Sequence[Sequence[Array]]) -> list[Array]:
        """Return the model's inputs for records; a tensor without the batch is that of the first record."""
        if self.fixed is not None:
            records = [records[index % len(records)] for index in range(self.fixed)]
        return [
            arrays[0] if place.axis is None else np.ascontiguousarray(np.stack(arrays, place.axis))
            for place, arrays in zip(self.places, zip(*records, strict=True), strict=True)
        ]

    def placed(self, rows: Sequence[Array]) -> list[Array]:
        """Return the model's inputs for records that are stacked: one array of each input, with the batch first."""
        if self.fixed is not None:
            rows = [array[np.arange(self.fixed) % len(array)] for array in rows]
        return [
            array[0] if place.axis is None else np.ascontiguousarray(np.moveaxis(array, 0, place.axis))
            for place, array in zip(self.places, rows, strict=True)
        ]


def take(array: Array, position: int, axis: int) -> Array:
    """Return one record of an array with a batch; that of a list of texts is an array, too."""
    where: tuple[Any, ...] = (*[slice(None)] * axis, position, ...)
    record: Array = array[where]
    return record


def of_record(shape: Shape) -> list[InputReading]:
    """Return the readings of an input whose records have a known shape, by the places where the batch may be."""
    axes = range(max(1, min(len(shape), 3)))
    return [*(InputReading(axis, shape) for axis in axes), InputReading(None, shape)]


def readings(
    specs: Sequence[TensorSpec],
    symbols: Mapping[str, Sequence[str]],
    anywhere: Mapping[str, Shape],
    whole: Whole = None,
) -> list[Reading]:
    """Return the ways to read the inputs of a model, the likeliest first.

    Args:
        specs: Inputs as the model has them.
        symbols: Input → symbol of each axis, empty for an axis without one.
        anywhere: Input → shape of a record, for those whose batch may be at any axis. The shapes of all others are
            known.
        whole: See `Whole`.
    """
    if whole is not True:
        found = _readings(specs, symbols, anywhere)
        if isinstance(whole, tuple):
            found = [_with_whole(reading, specs, whole, anywhere) for reading in found]
        found = [reading for reading in found if whole is None or reading.is_batched]
        if found:
            return [*dict.fromkeys(found)]
    return [_whole(specs, anywhere)]


def is_graph(reading: Reading, specs: Sequence[TensorSpec], symbols: Mapping[str, Sequence[str]]) -> bool:
    """Return True if the axes of the batch have two symbols or more, each in several inputs: nodes and edges, say."""
    axes = [
        symbols[spec.name][place.axis]
        for spec, place in zip(specs, reading.places, strict=True)
        if place.axis is not None and len(symbols.get(spec.name, ())) > place.axis
    ]
    return sum(count > 1 for symbol, count in Counter(axes).items() if symbol) > 1


def _whole(specs: Sequence[TensorSpec], anywhere: Mapping[str, Shape]) -> Reading:
    return Reading(tuple(InputReading(None, anywhere.get(spec.name, spec.shape or ())) for spec in specs))


def _with_whole(
    reading: Reading, specs: Sequence[TensorSpec], names: Sequence[str], anywhere: Mapping[str, Shape]
) -> Reading:
    """Return a reading with these inputs as whole tensors."""
    pairs = zip(specs, reading.places, _whole(specs, anywhere).places, strict=True)
    return replace(reading, places=tuple(whole if spec.name in names else place for spec, place, whole in pairs))


def _readings(
    specs: Sequence[TensorSpec], symbols: Mapping[str, Sequence[str]], anywhere: Mapping[str, Shape]
) -> list[Reading]:
    tensors = {spec.name: spec.shape for spec in specs if spec.name not in anywhere and spec.shape is not None}
    found: list[Reading] = []
    named = {name: _named(symbols.get(name, ())) for name in tensors}
    if any(axis is not None for axis in named.values()):
        # A symbol named like a batch leaves no doubt; another symbol may be one that a converter has made up.
        places = tuple(_at(tensors[spec.name], named[spec.name]) for spec in specs)
        sizes = {tensors[name][axis] for name, axis in named.items() if axis is not None}
        found = [Reading(places, fixed=next(iter(sizes)) if len(sizes) == 1 else None, is_named=True)]
        found += _free(specs, symbols, anywhere, named)
    elif anywhere or any(shape and shape[0] is None for shape in tensors.values()):
        found = _free(specs, symbols, anywhere)
    else:
        leading = {shape[0] for shape in tensors.values() if shape}
        if 1 in leading:
            found = [Reading(tuple(_leading(tensors[spec.name], 1) for spec in specs), fixed=1)]
        elif len(leading) == 1:
            (size,) = leading
            found = [Reading(tuple(_leading(tensors[spec.name], size) for spec in specs), fixed=size)]
        if 1 not in leading and any(None in shape for shape in tensors.values()):
            found += _free(specs, symbols, anywhere)
    return [*dict.fromkeys([*found, _whole(specs, anywhere)])]


def _free(
    specs: Sequence[TensorSpec],
    symbols: Mapping[str, Sequence[str]],
    anywhere: Mapping[str, Shape],
    named: Mapping[str, int | None] = MappingProxyType({}),
) -> list[Reading]:
    """Return the readings with the batch at free axes, or at the `named` ones, the likeliest first."""
    options = []
    for spec in specs:
        if (axis := named.get(spec.name)) is not None:
            options.append([_at(spec.shape or (), axis)])
        else:
            options.append(of_record(anywhere[spec.name]) if spec.name in anywhere else [*_places(spec.shape or ())])

    def used(places: Sequence[InputReading]) -> set[str]:
        return {
            symbols[spec.name][place.axis]
            for spec, place in zip(specs, places, strict=True)
            if place.axis is not None and spec.name in symbols
        }

    def doubt(places: Sequence[InputReading]) -> int:
        # Axes of one size usually have one symbol; some converters give each axis its own.
        return sum(map(_doubt, places)) + 2 * (len(used(places)) > 1)

    found = [
        Reading(places, is_named=bool(anywhere) or any(axis is not None for axis in named.values()))
        for places in sorted(islice(product(*options), _MOST_COMBINATIONS), key=doubt)
    ]
    return [reading for reading in found if reading.is_batched][:_MOST_READINGS]


def _doubt(place: InputReading) -> int:
    """Return how unlikely a place is; a tensor of rank 0 may well have no batch."""
    if place.axis is None:
        return 3 if place.record else 0
    return place.axis


def _named(symbols: Sequence[str]) -> int | None:
    """Return the axis whose symbol names the batch."""
    return next((axis for axis, symbol in enumerate(symbols) if _BATCH.fullmatch(symbol)), None)


def _places(shape: Shape) -> Iterator[InputReading]:
    for axis, size in enumerate(shape):
        if size is None:
            yield _at(shape, axis)
    yield _at(shape, None)


def _leading(shape: Shape, size: int | None) -> InputReading:
    return _at(shape, 0 if shape and shape[0] == size else None)


def _at(shape: Shape, axis: int | None) -> InputReading:
    return InputReading(axis, shape if axis is None else shape[:axis] + shape[axis + 1 :])
