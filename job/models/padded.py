"""Padding: records of different sizes are computed in one call, and their outputs are cut back to their own sizes."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from cluster_serving.job.batch import BatchMemory, gather
from cluster_serving.job.models.base import TRIAL_ERRORS, Model, TensorSpec, dummy_inputs
from cluster_serving.job.models.wrapper import Wrapper
from cluster_serving.protocol.errors import InvalidInput, ModelError
from cluster_serving.protocol.figures.counts import Counts
from cluster_serving.protocol.figures.metrics import CALLED, PADDING
from cluster_serving.protocol.inputs import Array

# A record joins others that are longer by a quarter, or by a few elements. Texts of 4 to 128 tokens in batches of 32,
# MiniLM: 240 records a second, against 185 of equal lengths only, and 80 if all are padded to the longest.
_MOST_PADDED = 0.25
_FEW = 8
# Engines prepare themselves for each new shape of a batch; OpenVINO computes small models 1.5 times as fast with fewer.
_STEP = 8
# A handler may give any number of records to a call; the memory of attention grows with it.
_MOST_RECORDS = 64
# Pairs of sizes with which a model is asked how its outputs follow; some fail on small ones.
_PROBES = ((2, 3), (16, 24), (64, 96))
_MOST_AXES = 6


class Axis(NamedTuple):
    """A dimension that is padded: the input's index, and the index of the dimension in a record."""

    input: int
    axis: int


class PaddedModel(Wrapper):
    """A model whose records may differ in the sizes of some inputs.

    Inputs of `predict` are arrays, or object arrays (n,) with an array of each record. An output that follows a padded
    size is an object array (n,), too. Records of similar sizes are computed together.

    Args:
        model: Computes batches of equal sizes. It is closed with this one.
        values: Name of an input → value that fills it up. Sizes that the model leaves free are padded to the longest
            record of a call, in steps, and fixed ones to the model's.
        tied: The padded sizes of a record are always equal. Otherwise calls find out which of them have to be.
        exact: Records of different sizes are never computed together.

    Raises:
        ModelError: If an input is unknown or has no shape, or an output follows the sizes in an unknown way.
    """

    def __init__(self, model: Model, values: Mapping[str, float], tied: bool = False, exact: bool = False) -> None:
        super().__init__(model)
        self._values = [values.get(spec.name, 0) for spec in model.inputs]
        self._exact = exact
        self._most = sys.maxsize
        self._axes, self._limits = _axes_of(model, values)
        self.padded = frozenset(values)
        self._counts = Counts()
        self.inputs = [
            _freed(spec, [axis for at, axis in self._axes if at == index]) for index, spec in enumerate(model.inputs)
        ]
        self._memories = [BatchMemory(spec.numpy_dtype) for spec in model.inputs]
        seen, self._follows = self._probe(tied)
        self.outputs = [
            _freed(_completed(spec, array), follows)
            for spec, array, follows in zip(model.outputs, seen, self._follows, strict=True)
        ]

    def predict(self, inputs: Sequence[Array]) -> list[Array]:
        """See `Model.predict`; raise `InvalidInput` if a record is larger than the model takes."""
        rows = [list(array) for array in inputs]
        records = list(zip(*rows, strict=True))
        sizes = [tuple([record[at].shape[axis] for at, axis in self._axes]) for record in records]
        self._check(sizes)
        groups = list(self._groups(records, sizes))
        parts = [
            self._compute([records[index] for index in group], [sizes[index] for index in group]) for group in groups
        ]
        if len(groups) == 1 and groups[0] == list(range(len(records))):
            return parts[0]
        order = np.argsort(np.concatenate(groups))
        return [np.concatenate(arrays)[order] for arrays in zip(*parts, strict=True)]

    def _check(self, sizes: Iterable[Sequence[int]]) -> None:
        for limit, (at, _), *found in zip(self._limits, self._axes, *sizes, strict=True):
            if limit is not None and max(found) > limit:
                spec = self._model.inputs[at]
                raise InvalidInput(
                    f"input {spec.name!r} has {max(found)} elements where the model takes {limit}: {spec}"
                )

    def _groups(self, records: Sequence[Sequence[Array]], sizes: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
        """Yield the indices of records that are computed together: equal but for padding, and of similar sizes."""
        alike: dict[tuple[int, ...], list[int]] = {}
        padded = set(self._axes)
        for index, record in enumerate(records):
            others = tuple(
                size
                for at, array in enumerate(record)
                for axis, size in enumerate(array.shape)
                if (at, axis) not in padded
            )
            alike.setdefault(others, []).append(index)
        for indices in alike.values():
            yield from _similar(indices, sizes, self._exact)

    def _compute(self, records: Sequence[Sequence[Array]], sizes: Sequence[tuple[int, ...]]) -> list[Array]:
        longest = [limit or max(found) for limit, *found in zip(self._limits, *sizes, strict=True)]
        rounded = [limit or self._rounded(size) for limit, size in zip(self._limits, longest, strict=True)]
        try:
            outputs = self._model.predict(self._batch(records, rounded))
        except TRIAL_ERRORS:
            if rounded == longest:
                raise
            outputs = self._model.predict(self._batch(records, longest))
            # The model takes the records, but not the rounded size.
            self._most = max(longest)
        return [
            self._cut(output, follows, sizes) if follows else output
            for output, follows in zip(outputs, self._follows, strict=True)
        ]

    def _rounded(self, size: int) -> int:
        return size if self._exact else max(size, min(-(-size // _STEP) * _STEP, self._most))

    def _batch(self, records: Sequence[Sequence[Array]], largest: Sequence[int]) -> list[Array]:
        batch = [self._filled(at, arrays, largest) for at, arrays in enumerate(zip(*records, strict=True))]
        elements = sum(batch[at].size for at in {axis.input for axis in self._axes})
        given = sum(record[at].size for record in records for at in {axis.input for axis in self._axes})
        self._counts.add(CALLED, elements)
        self._counts.add(PADDING, elements - given)
        return batch

    def _filled(self, at: int, arrays: Sequence[Array], largest: Sequence[int]) -> Array:
        """Return an input of a batch, whose records are filled up."""
        shape = list(arrays[0].shape)
        for size, axis in zip(largest, self._axes, strict=True):
            if axis.input == at:
                shape[axis.axis] = size
        memory = self._memories[at]
        if all(list(array.shape) == shape for array in arrays):
            return memory.join(arrays, already_batched=False)
        batch = memory.take((len(arrays), *shape), arrays[0].dtype)
        batch.fill(self._values[at])
        for row, array in zip(batch, arrays, strict=True):
            row[tuple([slice(size) for size in array.shape])] = array
        return batch

    def _cut(self, output: Array, follows: Mapping[int, int], sizes: Sequence[Sequence[int]]) -> Array:
        rows = []
        for row, own in zip(output, sizes, strict=True):
            rows.append(
                row[tuple([slice(own[follows[axis]] if axis in follows else None) for axis in range(row.ndim)])]
            )
        return gather(rows)

    def _probe(self, tied: bool) -> tuple[list[Array], list[dict[int, int]]]:
        """Return some outputs, and for each which of its dimensions, in a record, follow which padded dimension.

        Batches of zeros tell: a dimension that grows with an input's, and is as large, follows it.
        """
        free = [index for index, limit in enumerate(self._limits) if limit is None]
        error: Exception = ModelError("its inputs have no shapes")
        for small, large in _PROBES:
            try:
                # Some models name their outputs at the first call only.
                before = self._zeros([small] * len(self._axes))
                self._zeros([large if index in free else small for index in range(len(self._axes))])
            except TRIAL_ERRORS as failure:
                error = failure
                continue
            follows = [self._fixed(array) for array in before]
            for group in [tuple(free)] if tied or len(free) < 2 else self._independent(free, small, large):
                sizes = [large if index in group else small for index in range(len(self._axes))]
                for output, (first, second) in enumerate(zip(before, self._zeros(sizes), strict=True)):
                    for axis in self._grown(output, first, second, small, large):
                        follows[output][axis] = group[0]
            return before, follows
        raise ModelError(f"padding: the model fails on records of zeros of different sizes: {error}")

    def _zeros(self, sizes: Sequence[int]) -> list[Array]:
        specs = []
        for at, spec in enumerate(self._model.inputs):
            shape = [1, *(1 if size is None else size for size in spec.record_shape or ())]
            for (index, axis), size, limit in zip(self._axes, sizes, self._limits, strict=True):
                if index == at:
                    shape[axis + 1] = limit or size
            specs.append(replace(spec, shape=tuple(shape)))
        return self._model.predict(dummy_inputs(specs, 1) or [])

    def _independent(self, free: Sequence[int], small: int, large: int) -> list[tuple[int, ...]]:
        """Return the smallest sets of padded dimensions that can be large while the others are small."""
        left, groups = list(free), []
        for count in range(1, len(left) + 1):
            for group in combinations(left, count):
                if set(group) <= set(left):
                    with suppress(*TRIAL_ERRORS):
                        self._zeros([large if index in group else small for index in range(len(self._axes))])
                        groups.append(group)
                        left = [index for index in left if index not in group]
        return groups

    def _grown(self, output: int, first: Array, second: Array, small: int, large: int) -> Iterator[int]:
        for axis, (before, after) in enumerate(zip(first.shape[1:], second.shape[1:], strict=True)):
            if before != after:
                if (before, after) != (small, large):
                    raise ModelError(
                        f"padding: output {self._model.outputs[output].name!r} has {before} elements for inputs of "
                        f"{small}, and {after} for {large}, so it cannot be cut back to a record's own size; leave it "
                        "out (outputs in config.yaml), or pad in a handler"
                    )
                yield axis

    def _fixed(self, output: Array) -> dict[int, int]:
        """Return the dimensions of an output that surely follow a fixed size: equal in place and size, as of tokens.

        An output of two dimensions is left as it is: it may be a vector that happens to have as many elements.
        """
        if output.ndim < 3:
            return {}
        return {
            axis: index
            for index, ((_, axis), limit) in enumerate(zip(self._axes, self._limits, strict=True))
            if limit is not None and output.shape[axis + 1] == limit
        }


def _axes_of(model: Model, values: Mapping[str, float]) -> tuple[list[Axis], list[int | None]]:
    """Return the padded dimensions, and the size of each that is fixed."""
    axes, limits = [], []
    known = {spec.name: (index, spec) for index, spec in enumerate(model.inputs)}
    for name, value in values.items():
        if name not in known:
            raise ModelError(f"padding names the input {name!r}, and {model.describe()}")
        index, spec = known[name]
        if spec.record_shape is None:
            raise ModelError(f"padding names the input {spec}, whose shape is not known; set inputShapes: [[-1]]")
        if not _holds(spec, value):
            raise ModelError(f"padding has {value} for the input {spec}, which cannot hold it")
        free = [axis for axis, size in enumerate(spec.record_shape) if size is None]
        # Without a free size, records are filled up to the first one.
        padded = free or [0][: len(spec.record_shape)]
        if not padded:
            raise ModelError(f"padding names the input {spec}, which is a single value")
        axes += [Axis(index, axis) for axis in padded]
        limits += [spec.record_shape[axis] for axis in padded]
    if len(axes) > _MOST_AXES:
        raise ModelError(f"padding names inputs with {len(axes)} free sizes; at most {_MOST_AXES} are taken")
    return axes, limits


def _holds(spec: TensorSpec, value: float) -> bool:
    if spec.numpy_dtype is None:
        return spec.dtype != "str"
    with np.errstate(all="ignore"):
        held = np.asarray(value).astype(spec.numpy_dtype)
    # A fraction may be rounded.
    return bool(np.isfinite(held) == np.isfinite(value)) and (held.dtype.kind not in "biu" or held == value)


def _completed(spec: TensorSpec, seen: Array) -> TensorSpec:
    """Return the spec of an output after a first batch, for engines that do not tell it (TorchScript)."""
    if spec.shape is not None:
        return spec
    return replace(spec, dtype=spec.dtype or seen.dtype.name, shape=(None, *seen.shape[1:]))


def _freed(spec: TensorSpec, axes: Iterable[int]) -> TensorSpec:
    """Return a spec whose sizes at these dimensions of a record are free."""
    if spec.shape is None:
        return spec
    free = {axis + 1 for axis in axes}
    return replace(spec, shape=tuple(None if axis in free else size for axis, size in enumerate(spec.shape)))


def _similar(indices: Sequence[int], sizes: Sequence[tuple[int, ...]], exact: bool) -> Iterator[list[int]]:
    """Yield groups of records that need little padding; the largest record of a group comes first."""
    alike = all(sizes[index] == sizes[indices[0]] for index in indices)
    group: list[int] = []
    for index in indices if alike else sorted(indices, key=sizes.__getitem__, reverse=True):
        if group and (len(group) >= _MOST_RECORDS or not (alike or _near(sizes[index], sizes[group[0]], exact))):
            yield group
            group = []
        group.append(index)
    yield group


def _near(size: Sequence[int], largest: Sequence[int], exact: bool) -> bool:
    if exact:
        return size == largest
    return all(abs(most - own) <= max(_FEW, _MOST_PADDED * most) for own, most in zip(size, largest, strict=True))
