"""Post-processing: the filters of the key `postProcessing`, which keep a part of a model's outputs."""

import re
from collections.abc import Callable, Sequence

import numpy as np

from cluster_serving.protocol.errors import InferenceFailed, ModelError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.results import (
    RankedClasses,
    encode_ranked,
    encode_result,
    encode_rows,
    ranking_json,
    ranking_text,
)

Fields = dict[str, str | bytes]
Encoder = Callable[[bool, Sequence[str], Sequence[Array]], Fields]
"""Makes the fields of a result hash: (native encoding?, output names, one record's outputs) → fields."""

_SYNTAX = re.compile(r"(topN|top_n|pickTopN)\((\d+)\)")


def make_encoder(filter_text: str) -> Encoder:
    """Return the encoder for the filter of a job: "", `topN(n)`, `pickTopN(n)`, or `top_n(n)`, the `topN` of 0.7.

    Raises:
        ModelError: If the text is none of these.
    """
    if not filter_text:
        return encode_result
    match = _SYNTAX.fullmatch(filter_text.strip())
    if match is None or int(match[2]) < 1:
        raise ModelError(f"postProcessing is {filter_text!r}; expected topN(n) or pickTopN(n) with n of at least 1")
    count = int(match[2])
    if match[1] != "pickTopN":
        text_of = ranking_json if match[1] == "top_n" else ranking_text
        return lambda native, names, outputs: encode_ranked(
            native, names, [top_n(name, output, count) for name, output in zip(names, outputs, strict=True)], text_of
        )
    return lambda native, names, outputs: encode_rows(
        native, names, [pick_top_n(name, output, count) for name, output in zip(names, outputs, strict=True)]
    )


def top_n(name: str, output: Array, count: int) -> RankedClasses:
    """Return the `count` largest values with their index, best first; equal values keep the order of their index.

    The output of one record is a vector, or one with further dimensions of size 1.
    """
    if output.ndim == 0 or output.size != max(output.shape) or output.dtype.kind not in "biuf":
        raise InferenceFailed(
            f"topN needs one vector of numbers per record; output {name!r} is {output.dtype} of shape "
            f"{list(output.shape)}"
        )
    flat = output.reshape(-1)
    descending = -flat.astype("f8")
    candidates = np.arange(flat.size)
    if count < flat.size:
        # Sorting a thousand classes takes ten times as long as selecting the few candidates first.
        worst = np.partition(descending, count - 1)[count - 1]
        candidates = np.flatnonzero((descending <= worst) | np.isnan(worst))
    best = candidates[np.argsort(descending[candidates], kind="stable")[:count]]
    return [(int(index), float(flat[index])) for index in best]


def pick_top_n(name: str, output: Array, count: int) -> Array:
    """Return the first `count` rows of one record's output, which is 2-D, or 3-D whose first dimension is 1."""
    rows = output[0] if output.ndim == 3 and output.shape[0] == 1 else output
    if rows.ndim != 2:
        raise InferenceFailed(f"pickTopN needs rows; output {name!r} has shape {list(output.shape)}, expected 2-D")
    return rows[:count]
