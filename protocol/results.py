"""Result hashes, in our encoding if the request was, else in the original's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Union

import numpy as np

from cluster_serving.protocol import encodings, tensors
from cluster_serving.protocol.entry import NATIVE, Entry
from cluster_serving.protocol.errors import ServingError, from_wire
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.keys import JobKeys, image_result_key, to_bytes, to_text

VERSION = b"version"
"""Field of a result: version of the model that gave it."""

URI = b"uri"
"""Field that a client adds to an error: uri of the request."""

Fields = dict[bytes, bytes]
"""Fields of a result hash, as Redis returns them."""

_LARGE = 1 << 15
# Costs of 5 ns, measured: a byte of a ranking, a byte of JSON, and a text.
_RANKED_BYTE, _JSON_BYTE, _TEXT = 8, 32, 80

JSON = "json"
"""Field with a JSON list of the names of the outputs that are JSON documents."""

RankedClasses = list[tuple[int, float]]
"""An output filtered by `topN`: (class index, value), best first."""

Outputs = Union[dict[str, Array], list[RankedClasses]]
"""All outputs by name in the model's order, or their `topN` rankings."""


def to_fields(written: Mapping[str, str | bytes]) -> Fields:
    """Return the fields of a result as Redis would return them after they were written."""
    return {to_bytes(name): to_bytes(value) if isinstance(value, str) else value for name, value in written.items()}


def result_key_of(job: str, request: Entry) -> bytes:
    """Return the hash for the result of a request, which is where the client that sent it looks."""
    if request.native:
        return to_bytes(JobKeys(job).native_result(request.uri))
    if encodings.is_early(job, request.serde):
        return to_bytes(image_result_key(request.uri))
    return to_bytes(JobKeys(job).result(request.uri))


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
    return {"value": encodings.encode_result(outputs)}


def encode_ranked(
    native: bool,
    names: Sequence[str],
    ranked: Sequence[RankedClasses],
    text_of: Callable[[RankedClasses], str] = encodings.ranking_text,
) -> dict[str, str | bytes]:
    """Return the fields of the result hash for outputs filtered by `topN`, one ranking per output.

    A ranking is an array (n, 2) of class and value, and the field `topN` marks it. The original wrote a text as
    `value`, on which its own Python client fails. For its clients that text, which `text_of` writes, is in that field.
    """
    # A float64 holds every class index.
    fields = encode_result(native, names, [np.array(ranking, "f8").reshape(-1, 2) for ranking in ranked])
    if native:
        return fields | {"topN": ""}
    return fields | {"topN": "".join(map(text_of, ranked))}


def encode_rows(native: bool, names: Sequence[str], outputs: Sequence[Array]) -> dict[str, str | bytes]:
    """Return the fields of the result hash for 2-D outputs filtered by `pickTopN`; the text is in that field."""
    fields = encode_result(native, names, outputs)
    if native:
        return fields
    return fields | {"pickTopN": "".join(map(encodings.rows_text, outputs))}


def encode_error(error: ServingError) -> dict[str, str | bytes]:
    """Return the fields of the result hash for an error, readable by original clients (`NaN`) and ours."""
    return {"value": encodings.ERROR_VALUE, "error": error.message, "code": error.code}


def mark_json(fields: Mapping[str, str | bytes], names: Sequence[str]) -> dict[str, str | bytes]:
    """Return the fields of a result hash in which the outputs of these names, single texts, are JSON documents."""
    return {**fields, JSON: json.dumps(list(names))}


def decode_arrays(fields: Mapping[bytes, bytes]) -> dict[str, Array]:
    """Read the outputs in a result hash by name, in the model's order; for rankings see `encode_ranked`.

    A JSON document is an array without dimensions that holds the object.

    Raises:
        ServingError: If the request failed: the error from the job, as its own class.
    """
    if b"code" in fields:
        error = from_wire(fields[b"code"].decode(), fields.get(b"error", b"").decode("utf8", "replace"))
        error.version = version_of(fields)
        error.uri = to_text(fields[URI]) if URI in fields else None
        raise error
    value = fields.get(b"value", b"")
    if fields.get(b"serde") != NATIVE:
        return {str(index): array for index, array in enumerate(encodings.decode_result(value))}
    arrays = {name: np.asarray(output) for name, output in tensors.decode(value)[1].items()}
    if document := fields.get(JSON.encode()):
        arrays |= {name: _document(arrays[name].item()) for name in json.loads(document)}
    return arrays


def _document(text: str) -> Array:
    return np.fromiter([json.loads(text)], object).reshape(())


def version_of(fields: Mapping[bytes, bytes]) -> str | None:
    """Return the version of the model that gave a result; None if the job does not tell it."""
    version = fields.get(VERSION)
    return None if version is None else to_text(version)


def cost(fields: Mapping[bytes, bytes]) -> int:
    """Return the cost of `decode_outputs` for a large result, in bytes that are copied.

    Numbers are used where they are, and cost nothing. Texts, rankings and JSON become objects of Python.
    """
    value = fields.get(b"value", b"")
    if len(value) < _LARGE:
        return 0
    if is_ranked(fields):
        return _RANKED_BYTE * len(value)
    if JSON.encode() in fields:
        return _JSON_BYTE * len(value)
    return _TEXT * tensors.count_strings(value)


def decode_outputs(fields: Mapping[bytes, bytes]) -> Outputs:
    """Read a result hash: outputs by name, or their rankings.

    Raises:
        ServingError: See `decode_arrays`.
    """
    arrays = decode_arrays(fields)
    return [ranking_of(array) for array in arrays.values()] if is_ranked(fields) else arrays


def is_ranked(fields: Mapping[bytes, bytes]) -> bool:
    """Return True for a result that `topN` has filtered."""
    return b"topN" in fields


def ranking_of(pairs: Array) -> RankedClasses:
    """Return the ranking in an array (n, 2) of class and value. Values get no more digits than float32 has."""
    values = (float(str(value)) for value in pairs[:, 1].astype("f4"))
    return list(zip(pairs[:, 0].astype(int).tolist(), values))
