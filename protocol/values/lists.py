"""Nested lists of JSON: what they hold, and why they are no tensor."""

import json
import reprlib
from collections.abc import Callable, Sequence
from itertools import chain
from typing import cast

from cluster_serving.protocol.inputs import MAX_DIMENSIONS

NUMBERS = frozenset({int, float, bool})
"""Types of JSON's numbers; numpy counts truth values among them."""


def leaf_types(values: list[object]) -> set[type]:
    """Return the types of the leaves of nested lists, to be checked before numpy reads the lists.

    numpy gives every element as much memory as the longest text needs: a text of 500 KB among 4,000 others is 8 GB.
    If the lists are nested deeper than a tensor may be, `list` is among the types.
    """
    types: set[type] = set(map(type, values))
    for _ in range(MAX_DIMENSIONS - 1):
        if list not in types:
            break
        lists = values if len(types) == 1 else [value for value in values if type(value) is list]
        values = list(chain.from_iterable(cast("list[list[object]]", lists)))
        types = (types - {list}) | set(map(type, values))
    return types


def first_parts(values: object) -> tuple[list[int], object]:
    """Return the lengths of the first parts of nested lists, the outer ones first, and their first leaf.

    If the innermost of them is empty, it is the leaf.
    """
    lengths = []
    while isinstance(values, list):
        lengths.append(len(values))
        if not values:
            break
        values = values[0]
    return lengths, values


def irregularity(values: list[object], name: str, fits: Callable[[object], bool], expected: str) -> str:
    """Return the first part of nested lists that is not as their first parts are; empty if all are.

    Args:
        values: The lists.
        name: Name of the input, with which their places begin.
        fits: Tells whether a leaf is one of those that are taken.
        expected: These leaves in words: `a number`.
    """
    lengths, _ = first_parts(values)
    if len(lengths) > MAX_DIMENSIONS:
        return f"it is nested {len(lengths)} lists deep; at most {MAX_DIMENSIONS} are taken"
    return _irregularity(values, name, lengths, fits, expected)


def _irregularity(
    values: list[object], place: str, lengths: Sequence[int], fits: Callable[[object], bool], expected: str
) -> str:
    if len(values) != lengths[0]:
        return f"{place} has length {len(values)}, a list before it {lengths[0]}"
    below = lengths[1:]
    for index, part in enumerate(values):
        if below and isinstance(part, list):
            if problem := _irregularity(part, f"{place}[{index}]", below, fits, expected):
                return problem
        elif below or not fits(part):
            wanted = f"a list of length {below[0]}" if below else expected
            return f"{place}[{index}] is {shown(part)}; expected {wanted}"
    return ""


def shown(value: object) -> str:
    """Return a value for a message: short, and with the words of JSON."""
    return json.dumps(value) if value is None or isinstance(value, bool) else reprlib.repr(value)
