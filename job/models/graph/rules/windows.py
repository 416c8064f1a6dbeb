"""Operators that move windows over the axes behind the first two: convolutions and pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster_serving.job.models.graph.size import BATCH, ONE, Size, unknown_size
from cluster_serving.job.models.graph.value import Kind, Unknown, Value, displaced, rows, same_place

_FIRST = 2
"""First axis over which windows move."""

SAME = ("SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True, slots=True)
class Window:
    """The windows of an operator, by axis.

    Attributes:
        sizes: Sizes of the window; None for one that is not known.
        steps: Distance of the windows.
        gaps: Distance of the elements of a window.
        pads: Elements that are added in front, and then those that are added behind.
        padding: `NOTSET`, `VALID`, or one of `SAME`.
        is_ceil: The last window need not be a whole one.
    """

    sizes: Sequence[int | None]
    steps: Sequence[int]
    gaps: Sequence[int]
    pads: Sequence[int]
    padding: str = "NOTSET"
    is_ceil: bool = False

    def moved(self, axis: int, size: Size) -> Size:
        """Return the number of windows on an axis."""
        width, step, gap = self.sizes[axis], self.steps[axis], self.gaps[axis]
        if width is None or not size.is_number or self.is_ceil:
            return unknown_size()
        if self.padding in SAME:
            return Size(-(-size.number // step))
        pads = 0 if self.padding == "VALID" else self.pads[axis] + self.pads[axis + len(self.sizes)]
        return Size((size.number + pads - gap * (width - 1) - 1) // step + 1)


def moves(x: Value, window: Window) -> bool:
    """Return True if windows have several records each."""
    if x.kind is not Kind.ROWS or x.is_uniform or x.axis < _FIRST:
        return False
    width = window.sizes[x.axis - _FIRST]
    return width is not None and width > 1


def windowed(x: Value, channels: Size, sizes: Sequence[Size]) -> Value:
    """Return the result of windows over each record: the batch is the first axis."""
    if x.kind is Kind.ROWS and x.axis != 0:
        raise Unknown
    if not sizes or len(sizes) != x.rank - 2 or any(size.number < 1 for size in sizes):
        raise Unknown
    return same_place(x, (x.sizes[0], channels, *sizes))


def convolved(x: Value, weights: Value, added: Value | None, window: Window) -> Value:
    """Return a convolution with weights `[channels, …]`."""
    _check(x, weights, added)
    if moves(x, window):
        return displaced()
    return windowed(x, weights.sizes[0], [window.moved(at, size) for at, size in enumerate(x.sizes[2:])])


def spread(x: Value, weights: Value, added: Value | None, groups: int) -> Value:
    """Return a transposed convolution with weights `[…, channels / groups, …]`."""
    _check(x, weights, added)
    return windowed(x, weights.sizes[1].times(Size(groups)), [unknown_size() for _ in x.sizes[2:]])


def pooled(x: Value, window: Window) -> Value:
    """Return the result of windows over each channel of each record."""
    if moves(x, window):
        return displaced()
    return windowed(x, x.sizes[1], [window.moved(at, size) for at, size in enumerate(x.sizes[2:])])


def sampled(x: Value, grid: Value) -> Value:
    """Return images at places that each record has its own of."""
    if x.kind is Kind.ROWS and x.axis >= _FIRST and not x.is_uniform:
        return displaced()
    if any(value.kind is not Kind.ROWS or value.axis != 0 or value.sizes[0] != BATCH for value in (x, grid)):
        raise Unknown
    return rows((x.sizes[0], x.sizes[1], *grid.sizes[1:-1]), 0)


def scales(x: Value, factors: Mapping[int, float]) -> bool:
    """Return True if an image becomes another size on the axis of the batch, by these factors of axes."""
    return x.kind is Kind.ROWS and not x.is_uniform and factors.get(x.axis, 1) != 1


def pooled_globally(x: Value) -> Value:
    """Return the result of one window for each channel of each record."""
    return windowed(x, x.sizes[1], [ONE for _ in x.sizes[2:]])


def _check(x: Value, weights: Value, added: Value | None) -> None:
    if weights.kind is not Kind.CONSTANT or weights.rank != x.rank:
        raise Unknown
    if added is not None and added.kind is not Kind.CONSTANT:
        raise Unknown
