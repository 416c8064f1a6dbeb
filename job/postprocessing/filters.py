"""Post-processing: the filters of the key `postProcessing`, each of which changes the outputs of a record.

A distribution adds a filter by an entry point of the group `cluster_serving.postprocessors`, whose value is a
`Factory`. The built-in ones are in `_BUILT_IN`.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.job.encoding import Encoder, Fields, Ranking, Unfit
from cluster_serving.job.postprocessing.outputs import pack
from cluster_serving.protocol.encodings import ranking_json, ranking_text
from cluster_serving.protocol.errors import InferenceFailed, ModelError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.results import encode_ranked, encode_result, encode_rows, mark_json
from cluster_serving.protocol.values import filters

Step = Callable[[str, Any], Any]
"""Changes one output of a record: (name, array) → array, number, text, `Ranking`, or JSON as dict or list."""

Factory = Callable[[str, Path], Step]
"""Makes the step of a filter: (text in its parentheses, model folder) → step. May raise ValueError, and OSError."""


def make_encoder(text: str, folder: Path = Path()) -> Encoder:
    """Return the encoder for the filters of a job; `folder` is that of the model.

    Raises:
        ModelError: If a filter is unknown, or cannot be used.
    """
    added = _added() if text else {}
    try:
        parsed = filters.parse(text, added)
        if not parsed:
            return encode_result
        steps = [(_BUILT_IN.get(name) or added[name].load())(argument, folder) for name, argument in parsed]
    except (ValueError, OSError) as error:
        raise ModelError(f"postProcessing is {text!r}: {error}; expected {filters.EXPECTED}") from error
    return partial(_encode, steps, parsed[-1].name)


def _encode(steps: Sequence[Step], last: str, native: bool, names: Sequence[str], outputs: Sequence[Any]) -> Fields:
    values = [*outputs]
    for step in steps:
        values = [step(name, value) for name, value in zip(names, values, strict=True)]
    if all(isinstance(value, Ranking) for value in values):
        return encode_ranked(native, names, values, ranking_json if last == "top_n" else ranking_text)
    if last == "pickTopN":
        return encode_rows(native, names, values)
    arrays, documents = pack(dict(zip(names, values, strict=True)))
    fields = encode_result(native, list(arrays), list(arrays.values()))
    return mark_json(fields, documents) if documents else fields


@cache
def _added() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=filters.GROUP)}


def _labels(file: str, folder: Path) -> Step:
    """Return the filter `labels(file)`; the file, in the model folder, has a label per line."""
    path = folder / file
    return partial(_labelled, path.name, path.read_text("utf-8-sig").splitlines())


def top_n(name: str, output: Array, count: int | None = None, kind: str = "topN") -> Ranking:
    """Return the `count` largest values with their index, best first; equal values keep the order of their index.

    The output of one record is a vector, or one with further dimensions of size 1. Without a count, all are returned.
    """
    if (
        isinstance(output, Ranking)
        or output.ndim == 0
        or output.size != max(output.shape)
        or output.dtype.kind not in "biuf"
    ):
        raise _unfit(kind, "one vector of numbers per record", name, output)
    flat = output.reshape(-1)
    if count == 1 and flat.size and not np.isnan(value := flat[index := int(flat.argmax())]):
        return Ranking([(index, float(value))])
    descending = -flat.astype("f8")
    candidates = np.arange(flat.size)
    if count is not None and count < flat.size:
        # Sorting a thousand classes takes ten times as long as selecting the few candidates first.
        worst = np.partition(descending, count - 1)[count - 1]
        candidates = np.flatnonzero((descending <= worst) | np.isnan(worst))
    best = candidates[np.argsort(descending[candidates], kind="stable")[:count]]
    return Ranking((int(index), float(flat[index])) for index in best)


def pick_top_n(name: str, output: Array, count: int) -> Array:
    """Return the first `count` rows of one record's output, which is 2-D, or 3-D whose first dimension is 1."""
    rows = output[0] if isinstance(output, np.ndarray) and output.ndim == 3 and output.shape[0] == 1 else output
    if not isinstance(rows, np.ndarray) or rows.ndim != 2:
        raise _unfit("pickTopN", "rows", name, output, ", expected 2-D")
    return rows[:count]


def softmax(name: str, output: Array) -> Array:
    """Return the probabilities of logits along the last axis; float64 stays, other numbers become float32."""
    values = _numbers("softmax", name, output)
    values = values.astype("f8" if values.dtype == "f8" else "f4")
    odds = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=-1, keepdims=True))


def sigmoid(name: str, output: Array) -> Array:
    """Return 1 / (1 + exp(-x)) of each number; float64 stays, other numbers become float32."""
    values = _numbers("sigmoid", name, output)
    values = values.astype("f8" if values.dtype == "f8" else "f4")
    # exp of a large number would overflow.
    small = np.exp(-np.abs(values))
    return np.asarray(np.where(values < 0, small, 1) / (1 + small))


def argmax(name: str, output: Array) -> Array:
    """Return the index of the largest value along the last axis, int64."""
    return np.asarray(_numbers("argmax", name, output).argmax(axis=-1))


def _top_n(count: int, name: str, output: Any) -> Ranking:
    return Ranking(output[:count]) if isinstance(output, Ranking) else top_n(name, output, count)


def _at_least(least: np.float32, name: str, output: Any) -> Ranking:
    """Return the ranking of the classes whose value is `least` or more, as the float32 that clients read."""
    ranking = output if isinstance(output, Ranking) else top_n(name, output, kind="threshold")
    return Ranking((index, value) for index, value in ranking if np.float32(value) >= least)


def _labelled(file: str, labels: Sequence[str], name: str, output: Any) -> Any:
    """Return the label of each class: texts for whole numbers, JSON for a ranking."""

    def label(index: int) -> str:
        if not 0 <= index < len(labels):
            raise InferenceFailed(f"output {name!r} has class {index}, and {file} has {len(labels)} labels")
        return labels[index]

    if isinstance(output, Ranking):
        # As `ranking_of` reads the values of a ranking.
        return [{"class": index, "label": label(index), "prob": np.float32(value)} for index, value in output]
    if not isinstance(output, np.ndarray) or output.dtype.kind not in "iu":
        raise _unfit("labels", "whole numbers, as of argmax, or a ranking, as of topN(n)", name, output)
    return np.fromiter((label(int(index)) for index in output.flat), object).reshape(output.shape)


def _numbers(kind: str, name: str, output: Any) -> Array:
    if not isinstance(output, np.ndarray) or not output.size or not output.ndim or output.dtype.kind not in "biuf":
        raise _unfit(kind, "an array of numbers per record", name, output)
    return output


def _unfit(kind: str, needs: str, name: str, output: Any, more: str = "") -> Unfit:
    is_array = isinstance(output, np.ndarray)
    actual = f"{output.dtype} of shape {list(output.shape)}" if is_array else "a ranking"
    error = Unfit(f"{kind} needs {needs}; output {name!r} is {actual}{more}")
    error.always = not is_array or bool(output.size)
    return error


_BUILT_IN: dict[str, Factory] = {
    "topN": lambda count, _: partial(_top_n, int(count)),
    # It differs in the text that clients of 0.7 read.
    "top_n": lambda count, _: partial(_top_n, int(count)),
    "pickTopN": lambda count, _: partial(pick_top_n, count=int(count)),
    "softmax": lambda *_: softmax,
    "sigmoid": lambda *_: sigmoid,
    "argmax": lambda *_: argmax,
    "threshold": lambda least, _: partial(_at_least, np.float32(least)),
    "labels": _labels,
}
