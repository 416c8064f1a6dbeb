"""The text of `postProcessing`: filters that are applied to each output, one after the other."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple

GROUP = "cluster_serving.postprocessors"
"""Group of the entry points of filters that other distributions add."""

_COUNT = r"[1-9]\d*"

BUILT_IN = {
    "topN": _COUNT,
    "top_n": _COUNT,
    "pickTopN": _COUNT,
    "softmax": "",
    "sigmoid": "",
    "argmax": "",
    "threshold": r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?",
    "labels": r"[^()|]+",
}
"""Built-in filters, with a pattern of the argument that they need; empty for none."""

EXPECTED = (
    "topN(n), pickTopN(n), softmax, sigmoid, argmax, threshold(x), labels(file), or several with | between them, such "
    "as softmax | topN(3); empty for none"
)

_SYNTAX = re.compile(r"([A-Za-z_]\w*)(?:\(([^()|]*)\))?")


class Filter(NamedTuple):
    """One filter: its name, and the text in its parentheses."""

    name: str
    argument: str


def parse(text: str, others: Container[str] = ()) -> list[Filter]:
    """Read the filters of a text; `others` are the names of those that are not built in.

    Raises:
        ValueError: If a filter is unknown, or its argument is not what it needs.
    """
    found = []
    for part in text.split("|") if text.strip() else ():
        match = _SYNTAX.fullmatch(part.strip())
        name, argument = (match[1], (match[2] or "").strip()) if match else ("", "")
        known = re.fullmatch(BUILT_IN[name], argument) if name in BUILT_IN else name in others
        if not (match and known):
            raise ValueError(f"{part.strip()!r} is not a filter")
        found.append(Filter(name, argument))
    return found
