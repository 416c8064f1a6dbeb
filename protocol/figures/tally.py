"""Comparison of the answers of a shadow with those of the generation that serves.

Numbers count as equal within the tolerances of `numpy.isclose`; whole numbers, classes, texts, names, dtypes and
shapes have to be equal. `protocol.figures.comparison` reads the results.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from cluster_serving.protocol.columns import EACH, results
from cluster_serving.protocol.figures.comparison import MOST_EXAMPLES
from cluster_serving.protocol.figures.stats import LATENCY_BOUNDS_MS, bound
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.keys import to_text
from cluster_serving.protocol.results import Fields, decode_arrays, is_ranked

RELATIVE, ABSOLUTE = 1e-3, 1e-5
"""Numbers are equal if they differ by at most `ABSOLUTE`, plus `RELATIVE` of that of the generation that serves."""

LATENCY_US = "latency_us"
"""Field with the latency, beside the fields of a result that is kept for a comparison."""

_SIDES = ("serving", "shadow")
_MOST_CHARACTERS = 200
_MOST_RECORDS = 3
_EACH = EACH.encode()


class Tally:
    """Results of comparisons, on their way to the hash.

    Attributes:
        counts: Counters by field.
        largest: Largest difference between two numbers.
        examples: Answers that differ, as JSON.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.largest = 0.0
        self.examples: list[str] = []

    def add(self, serving: Fields, shadow: Fields, shadow_us: int) -> None:
        """Compare two answers of a request: the kept one, with uri and latency, and that of the shadow."""
        self.counts["compared"] += 1
        for side, latency_us in zip(_SIDES, (int(serving[LATENCY_US.encode()]), shadow_us)):
            self.counts[f"{side}_ms:{bound(LATENCY_BOUNDS_MS, latency_us / 1000)}"] += 1
        failed = [_failures(serving), _failures(shadow)]
        if failed[0] and not failed[1]:
            self.counts["serving_failures"] += 1
        elif failed[1] and not failed[0]:
            self.counts["shadow_failures"] += 1
        what, largest = difference(serving, shadow)
        self.largest = max(self.largest, largest)
        if what:
            self.counts["differing"] += 1
            if len(self.examples) < MOST_EXAMPLES:
                uri = to_text(serving.get(b"uri", b""))
                texts = {side: _shown(fields) for side, fields in zip(_SIDES, (serving, shadow))}
                self.examples.append(json.dumps({"uri": uri, "difference": what, **texts}))


def difference(serving: Fields, shadow: Fields) -> tuple[str, float]:
    """Return in which way two answers differ, empty if they do not, and the largest difference between two numbers."""
    if b"code" in serving or b"code" in shadow:
        codes = [fields.get(b"code", b"no error").decode() for fields in (serving, shadow)]
        return ("" if codes[0] == codes[1] else f"{codes[0]} became {codes[1]}"), 0.0
    if _EACH in serving or _EACH in shadow:
        return _difference_of_records(serving, shadow)
    try:
        before, after = decode_arrays(serving), decode_arrays(shadow)
    except Exception as error:
        return f"an answer cannot be read: {type(error).__name__}: {error}", 0.0
    if before.keys() != after.keys():
        return f"the outputs {', '.join(before)} became {', '.join(after)}", 0.0
    largest, texts = 0.0, []
    if is_ranked(serving) and is_ranked(shadow):
        before, after = dict(_columns(before)), dict(_columns(after))
    for name, array in before.items():
        text, distance = _difference(array, after[name])
        if text:
            texts.append(f"output {name}: {text}")
        largest = max(largest, distance)
    return "; ".join(texts), largest


def _failures(fields: Fields) -> int:
    """Return the number of records that have failed; 1 for the whole request."""
    return 1 if b"code" in fields else int(fields.get(_EACH, 0))


def _difference_of_records(serving: Fields, shadow: Fields) -> tuple[str, float]:
    """Return what `difference` does for a request of many records, if an answer has a result for each of them."""
    if not (_EACH in serving and _EACH in shadow):
        before, after = _failures(serving), _failures(shadow)
        return (f"{before} failed records became {after}" if before != after else "the shapes of records differ"), 0.0
    found = [difference(*both) for both in zip(results(serving), results(shadow))]
    texts = [f"record {index}: {text}" for index, (text, _) in enumerate(found) if text]
    return "; ".join(texts[:_MOST_RECORDS]), max(largest for _, largest in found)


def _difference(before: Array, after: Array) -> tuple[str, float]:
    kinds = [f"{array.dtype}{list(array.shape)}" for array in (before, after)]
    if kinds[0] != kinds[1]:
        return f"{kinds[0]} became {kinds[1]}", 0.0
    if before.dtype.kind in "OUS":
        return ("" if _alike(before.tolist(), after.tolist()) else "the texts differ"), 0.0
    if before.dtype.kind in "biu":
        # float64 would round whole numbers of 64 bits. Without a sign, differences of all of them fit.
        unsigned = f"u{before.dtype.itemsize}"
        distances = np.maximum(before, after).view(unsigned) - np.minimum(before, after).view(unsigned)
        unlike, largest = int(np.count_nonzero(distances)), float(distances.max(initial=0))
        return (f"{unlike} of {before.size} numbers differ, by up to {largest:g}" if unlike else ""), largest
    first, second = (array.astype("c16" if array.dtype.kind == "c" else "f8") for array in (before, after))
    finite = np.isfinite(first) & np.isfinite(second)
    largest = float(np.abs(first[finite] - second[finite]).max(initial=0))
    # The original's encoding has whole numbers, such as classes, as floats.
    whole = first.dtype.kind == "f" and bool((first[finite] % 1 == 0).all() and (second[finite] % 1 == 0).all())
    relative, absolute = (0.0, 0.0) if whole else (RELATIVE, ABSOLUTE)
    unlike = int((~np.isclose(second, first, relative, absolute, equal_nan=True)).sum())
    return (f"{unlike} of {first.size} numbers differ, by up to {largest:g}" if unlike else ""), largest


def _alike(before: Any, after: Any) -> bool:
    """Return True if two texts, lists of texts or JSON documents are equal but for small differences of numbers."""
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(_alike(before[name], after[name]) for name in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(_alike(a, b) for a, b in zip(before, after))
    if isinstance(before, float) and isinstance(after, float):
        return bool(np.isclose(after, before, RELATIVE, ABSOLUTE, equal_nan=True))
    return bool(before == after)


def _columns(rankings: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """Return classes and values of rankings as outputs of their own: equal classes are needed, and similar values."""
    for name, pairs in rankings.items():
        yield f"{name} (classes)", pairs[:, 0]
        yield f"{name} (values)", pairs[:, 1]


def _shown(fields: Fields) -> str:
    """Return an answer in short."""
    if b"code" in fields:
        text = f"{fields[b'code'].decode()}: {to_text(fields.get(b'error', b''))}"
    elif _EACH in fields:
        text = " | ".join(map(_shown, islice(results(fields), _MOST_RECORDS)))
    else:
        try:
            arrays = decode_arrays(fields)
        except Exception:
            return "?"
        parts = (np.array2string(array, precision=6, threshold=20, edgeitems=5) for array in arrays.values())
        text = "; ".join(f"{name} {' '.join(part.split())}" for name, part in zip(arrays, parts))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
