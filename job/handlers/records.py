"""Records of a handler: which of them share a batch, and the outputs of each in those of a batch."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from cluster_serving.job.handlers.handler import END
from cluster_serving.protocol.errors import ServingError
from cluster_serving.protocol.inputs import Array

Record = dict[str, Any]
"""Values of one record by name: arrays without a batch dimension, texts, or other objects."""

PLAIN = (bool, int, float, complex, np.generic)
"""Types of single numbers."""

_NUMERIC = (*PLAIN, np.ndarray)


def named(names: Sequence[str], records: Sequence[Sequence[Array]]) -> list[Record]:
    """Return records by the names of their inputs, with single texts as `str`."""
    return [
        {
            name: value if value.ndim or value.dtype.kind != "O" else value.item()
            for name, value in zip(names, record, strict=True)
        }
        for record in records
    ]


def split(outputs: Any, count: int, in_pieces: bool = False) -> list[Any]:
    """Return the outputs of each record; a list may have the exception of a record in its place.

    `in_pieces`, it may also have None and `END`.

    Raises:
        ValueError, TypeError: If `predict` returned something else.
    """
    verb = "yielded" if in_pieces else "returned"
    if isinstance(outputs, Mapping):
        if not outputs:
            raise ValueError(f"predict {verb} a dict without outputs; expected at least one")
        for name, values in outputs.items():
            if not hasattr(values, "__len__") or isinstance(values, str) or not _is_batch(values, count):
                raise ValueError(
                    f"predict {verb} {kind(values)} as {name!r} for a batch of {count}; expected an array whose "
                    "first dimension is the batch, or a list with a value of each record"
                )
        if len(outputs) == 1:
            return [{name: value} for value in values]
        names = [*outputs]
        return [dict(zip(names, row, strict=True)) for row in zip(*outputs.values(), strict=True)]
    others = (None, END) if in_pieces else ()
    if (
        isinstance(outputs, list | tuple)
        and len(outputs) == count
        and all(isinstance(one, Mapping | Exception) or any(one is other for other in others) for one in outputs)
    ):
        return [dict(one) if isinstance(one, Mapping) else one for one in outputs]
    raise TypeError(
        f"predict {verb} {kind(outputs)} for a batch of {count}; expected a dict of names and arrays, or a list "
        "with a dict, or an exception, for each record"
    )


def _is_batch(values: Any, count: int) -> bool:
    shape = getattr(values, "shape", None)
    return shape != () and len(values) == count


def kind(value: Any) -> str:
    """Return type and size of a value, for messages."""
    facts = [type(value).__name__]
    if hasattr(value, "shape"):
        facts.append(f"shape {list(value.shape)}")
    elif hasattr(value, "__len__"):
        facts.append(f"length {len(value)}")
    return ", ".join(facts)


def groups(records: Sequence[Record | ServingError], padded: Container[str] = ()) -> Iterable[Sequence[int]]:
    """Return the indices of records that can share a batch; errors are left out.

    Values of the names `padded` may differ in size.
    """
    first = records[0]
    if type(first) is dict and all(_alike(first, record, padded) for record in records):
        return [range(len(records))]
    groups: list[list[int]] = []
    for index, record in enumerate(records):
        if isinstance(record, ServingError):
            continue
        group = next((group for group in groups if _alike(cast(Record, records[group[0]]), record, padded)), None)
        if group is None:
            groups.append([index])
        else:
            group.append(index)
    return groups


def _alike(one: Record, other: Any, padded: Container[str]) -> bool:
    """Return True if two records can share a batch: names, dtypes and shapes of arrays, kinds of numbers are equal."""
    if one is other:
        return True
    if type(other) is not dict or one.keys() != other.keys():
        return False
    for name, value in one.items():
        beside = other[name]
        if isinstance(value, np.ndarray):
            if not isinstance(beside, np.ndarray) or value.dtype != beside.dtype:
                return False
            if value.shape != beside.shape and (name not in padded or value.ndim != beside.ndim):
                return False
        elif type(value) is not type(beside) and (isinstance(value, PLAIN) or isinstance(beside, _NUMERIC)):
            # Texts and all other objects share a batch, but not with numbers.
            return False
    return True
