"""Result hashes, in our encoding if the request was, else in the original's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Union

import numpy as np

from cluster_serving.protocol import tensors
from cluster_serving.protocol.entry import NATIVE, Entry
from cluster_serving.protocol.errors import ServingError, from_wire
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.keys import image_result_key, native_result_key, result_key, to_bytes
from cluster_serving.protocol.original import arrow as original_arrow
from cluster_serving.protocol.original import image_stream
from cluster_serving.protocol.original.floats import java_float

Fields = dict[bytes, bytes]
"""Fields of a result hash, as Redis returns them."""

RankedClasses = list[tuple[int, float]]
"""An output filtered by `topN`: (class index, value), best first."""

Result = Union[Array, list[Array], RankedClasses, list[RankedClasses], str]
"""One output, several outputs in the model's order, their `topN` rankings, or the text of the original's filter."""

Outputs = Union[dict[str, Array], list[RankedClasses]]
"""All outputs by name in the model's order, or their `topN` rankings."""

_RANKING = ("topN.classes", "topN.values", "topN.counts")


def result_key_of(job: str, request: Entry) -> bytes:
    """Return the hash for the result of a request, which is where the client that sent it looks."""
    if request.native:
        return to_bytes(native_result_key(job, request.uri))
    if image_stream.sent(job, request):
        return to_bytes(image_result_key(request.uri))
    return to_bytes(result_key(job, request.uri))


def encode_result(native: bool, names: Sequence[str], outputs: Sequence[Array]) -> dict[str, str | bytes]:
    """Return the fields of the result hash for a model's outputs, one array per name, without a batch dimension.

    The encoding is our own (`native`) or the original's.

    Raises:
        ValueError: If our encoding, which names outputs, gets more or fewer of them than names.
    """
    if native:
        if len(names) != len(outputs):
            raise ValueError(f"there are {len(outputs)} outputs for the names {', '.join(names)}")
        return {"value": tensors.encode(dict(zip(names, outputs))), "serde": NATIVE}
    return {"value": original_arrow.encode_result(outputs)}


def ranking_text(ranking: RankedClasses) -> str:
    """Write a ranking as the original's server does: without a comma between the pairs."""
    pairs = (f"[{index},{java_float(value)}]" for index, value in ranking)
    return f"[{''.join(pairs)}]"


def ranking_json(ranking: RankedClasses) -> str:
    """Write a ranking as the original's server of 0.7 does: a JSON object, all of texts."""
    pairs = (f'"{index}":"{java_float(value)}"' for index, value in ranking)
    return f"{{{','.join(pairs)}}}"


def encode_ranked(
    native: bool, ranked: Sequence[RankedClasses], text_of: Callable[[RankedClasses], str] = ranking_text
) -> dict[str, str | bytes]:
    """Return the fields of the result hash for outputs filtered by `topN`, one ranking per output.

    The original wrote a text as `value`, on which its own Python client fails. Here `value` is an array (n, 2) of class
    and value, and the text, which `text_of` writes, is in the field `topN`.
    """
    if native:
        pairs = [pair for ranking in ranked for pair in ranking]
        classes = np.array([index for index, _ in pairs], "i8")
        values = np.array([value for _, value in pairs], "f4")
        counts = np.array([len(ranking) for ranking in ranked], "i8")
        return {"value": tensors.encode(dict(zip(_RANKING, (classes, values, counts)))), "serde": NATIVE}
    arrays = [np.array(ranking, "f4") for ranking in ranked]
    return {"value": original_arrow.encode_result(arrays), "topN": "".join(map(text_of, ranked))}


def encode_rows(native: bool, names: Sequence[str], outputs: Sequence[Array]) -> dict[str, str | bytes]:
    """Return the fields of the result hash for 2-D outputs filtered by `pickTopN`; the text is in that field."""
    fields = encode_result(native, names, outputs)
    if native:
        return fields
    return fields | {"pickTopN": "".join(map(rows_text, outputs))}


def rows_text(output: Array) -> str:
    """Write the rows of `pickTopN` as the original's server does: without a comma between them."""
    rows = (f"[{','.join(map(java_float, row))}]" for row in output.tolist())
    return f"[{''.join(rows)}]"


def encode_error(error: ServingError) -> dict[str, str | bytes]:
    """Return the fields of the result hash for an error, readable by original clients (`NaN`) and ours."""
    return {"value": original_arrow.ERROR_VALUE, "error": error.message, "code": error.code}


def decode_result(fields: Mapping[bytes, bytes]) -> Result:
    """Read a result hash.

    Raises:
        ServingError: If the request failed: the error from the job, as its own class.
    """
    value = fields.get(b"value", b"")
    if b"code" not in fields and fields.get(b"serde") != NATIVE and value.startswith(b"["):
        return value.decode()
    outputs = decode_outputs(fields)
    values = outputs if isinstance(outputs, list) else list(outputs.values())
    return values[0] if len(values) == 1 else values


def decode_outputs(fields: Mapping[bytes, bytes]) -> Outputs:
    """Read a result hash and keep the names of the outputs.

    Raises:
        ServingError: If the request failed: the error from the job, as its own class.
    """
    if b"code" in fields:
        raise from_wire(fields[b"code"].decode(), fields.get(b"error", b"").decode("utf8", "replace"))
    value = fields.get(b"value", b"")
    if fields.get(b"serde") != NATIVE:
        arrays = original_arrow.decode_result(value)
        if b"topN" in fields:
            return [list(zip(array[:, 0].astype(int).tolist(), _shortest(array[:, 1]))) for array in arrays]
        return {str(index): array for index, array in enumerate(arrays)}
    _, outputs = tensors.decode(value)
    if tuple(outputs) == _RANKING:
        classes, values, counts = map(np.asarray, outputs.values())
        pairs = iter(zip(classes.tolist(), _shortest(values)))
        return [list(islice(pairs, count)) for count in counts.tolist()]
    return {name: np.asarray(output) for name, output in outputs.items()}


def _shortest(values: Array) -> list[float]:
    """Return float32 numbers as floats with no more digits than they have: 0.1, not 0.10000000149011612."""
    return [float(str(value)) for value in values]
