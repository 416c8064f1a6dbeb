"""Lists of numbers, as JSON has them, encoded as float32 without an array in between."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from cluster_serving.protocol.inputs import MAX_DIMENSIONS
from cluster_serving.protocol.signature import LITTLE_ENDIAN
from cluster_serving.protocol.tensors import is_cacheable, layout_of

_ONLY_LISTS = {list}
_FLOAT32 = LITTLE_ENDIAN["float32"]
_FLOAT32_WHOLE = 1 << 24
"""Largest whole number up to which a float32 holds all."""


def encode_floats(lists: Mapping[str, object], exact: bool = False) -> bytes | None:
    """Encode lists of numbers as tensors of float32, as `encode` does arrays of them, in a fraction of the time.

    Return None where `pack_floats` does; `exact`, also if some whole numbers may have more digits than float32.
    """
    if not lists or not is_cacheable(lists):
        return None
    kinds: list[tuple[str, np.dtype[Any], tuple[int, ...]]] = []
    data: list[bytes] = []
    for name, values in lists.items():
        packed = pack_floats(values, exact)
        if packed is None:
            return None
        kinds.append((name, _FLOAT32, packed[1]))
        data.append(packed[0])
    layout = layout_of(tuple(kinds))
    return None if layout is None else b"".join(layout.fill(data))


def pack_floats(values: object, exact: bool = False) -> tuple[bytes, tuple[int, ...]] | None:
    """Return the numbers of lists as float32, little-endian, and the shape of the lists, which may be nested.

    numpy takes five times as long to read flat ones. Return None if the lists are no tensor of float32: they are
    empty, too deep, of different lengths, or hold something that is no number, or a number that float32 cannot hold.
    """
    if not isinstance(values, list) or not values:
        return None
    shape = [len(values)]
    while type(values[0]) is list:
        lengths = set(map(len, values)) if set(map(type, values)) == _ONLY_LISTS else set()
        if len(lengths) != 1 or 0 in lengths or len(shape) == MAX_DIMENSIONS:
            return None
        shape += lengths
        values = list(chain.from_iterable(values))
    try:
        if (
            exact
            and int in set(map(type, values))
            and not -_FLOAT32_WHOLE <= min(values) <= max(values) <= _FLOAT32_WHOLE
        ):
            return None
        return struct.pack(f"<{len(values)}f", *values), tuple(shape)
    except (struct.error, OverflowError, TypeError):
        return None
