"""Embeddings: texts become inputs of a model, and its vectors the answer."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_serving.frontend import dataplane
from cluster_serving.frontend.api.json_text import parse
from cluster_serving.frontend.api.openai.completions import counts, model_of, prompt_of, text_input
from cluster_serving.frontend.errors import check_count
from cluster_serving.frontend.server.http.responses import dumps
from cluster_serving.protocol.columns import Columns
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from cluster_serving.protocol.tensors import Encoded, encode
from cluster_serving.protocol.values.lists import shown

_FORMATS = ("float", "base64")
_NAMES = ("embedding", "embeddings")
"""Names of the output that is taken among several vectors."""

_OTHERS = frozenset({"model", "input", "encoding_format", "dimensions", "user"})


@dataclass(frozen=True, slots=True)
class EmbeddingRequest(dataplane.DecodedRequest):
    """A request for embeddings; it has a record for each, and none if nothing is known about the model.

    Attributes:
        model: Name of the model; empty for the default model.
        as_base64: True for base64 of float32, least significant byte first; False for numbers.
        dimensions: Size that embeddings must have; None for any.
        tokens: Number of token ids that were sent; 0 for texts.
    """

    model: str
    as_base64: bool = False
    dimensions: int | None = None
    tokens: int = 0


def read(body: bytes, most: int, described: Mapping[str, SlotReport | None]) -> EmbeddingRequest:
    """Read a request; `described` has the report of each model by name, the empty name is the default model's.

    Texts go to the only text that the model takes, and lists of token ids to its only input.

    Raises:
        InvalidInput: If the model takes neither, or a parameter is unknown or has another form.
        RequestTooLarge: If there are more than `most` texts.
    """
    content = parse(body)
    model = model_of(content)
    report = described.get(model)
    if report is None:
        return EmbeddingRequest((), model)
    if unknown := sorted(content.keys() - _OTHERS):
        raise InvalidInput(f"there is no parameter {unknown[0][:64]!r}; there are {', '.join(sorted(_OTHERS))}")
    given = content.get("input")
    several = isinstance(given, list) and not _are_tokens(given)
    items: list[Any] = given if several and isinstance(given, list) else [given]
    if not items:
        raise InvalidInput("'input' is empty; expected a text or a list of texts")
    check_count("'input'", len(items), most)
    form = "float" if (asked := content.get("encoding_format")) is None else asked
    if form not in _FORMATS:
        raise InvalidInput(f"'encoding_format' is {shown(form)}; expected {' or '.join(_FORMATS)}")
    dimensions = content.get("dimensions")
    if dimensions is not None and type(dimensions) is not int:
        raise InvalidInput(f"'dimensions' is {shown(dimensions)}; expected a whole number")
    if not isinstance(content.get("user"), str | None):
        raise InvalidInput(f"'user' is {shown(content['user'])}; expected a text")
    if all(isinstance(item, str) for item in items):
        spec = prompt_of(report)
        texts = Columns({spec.name: np.stack([text_input(spec, text) for text in items])})
        return EmbeddingRequest(texts, model, form == "base64", dimensions, counted=json.dumps([spec.name]))
    if not all(map(_are_tokens, items)):
        raise InvalidInput("'input' holds other things than texts; expected a text, a list of texts, or token ids")
    spec = _ids_of(report)
    try:
        records = [Encoded(encode({spec.name: np.array(ids, spec.dtype)})) for ids in items]
    except OverflowError:
        raise InvalidInput(f"'input' holds a token id that is not of type {spec.dtype}") from None
    return EmbeddingRequest(records, model, form == "base64", dimensions, sum(map(len, items)))


def takes(report: SlotReport) -> bool:
    """Return True if a model surely answers: it takes one text, and gives one vector of numbers, or names it so."""
    vectors = {
        spec.name for spec in report.outputs if len(spec.record_shape or ()) == 1 and spec.dtype.startswith("float")
    }
    is_one = len(vectors) == 1 or not vectors.isdisjoint(_NAMES)
    return is_one and [(spec.dtype, spec.record_shape) for spec in report.inputs] == [("str", ())]


def write(answers: Sequence[Mapping[str, Array]], asked: EmbeddingRequest, model: str) -> bytes:
    """Write the body of the answer.

    The embedding is the output `embedding` or `embeddings`, or else the only vector of numbers. The output
    `prompt_tokens` has the number of tokens; unless all have it, token ids count, and texts do not.

    Raises:
        InvalidInput: If the outputs have no such vector, or it has another size than the client wants.
    """
    data = [
        {"object": "embedding", "index": index, "embedding": _written(_vector(outputs, asked.dimensions), asked)}
        for index, outputs in enumerate(answers)
    ]
    told = [counts(outputs)[0] for outputs in answers]
    tokens = asked.tokens if None in told else sum(count or 0 for count in told)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return dumps({"object": "list", "data": data, "model": model, "usage": usage})


def _written(vector: Array, asked: EmbeddingRequest) -> Any:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode() if asked.as_base64 else vector


def _vector(outputs: Mapping[str, Array], size: int | None) -> Array:
    vectors = {
        name: array for name, array in outputs.items() if getattr(array, "ndim", 0) == 1 and array.dtype.kind == "f"
    }
    named = [vectors[name] for name in _NAMES if name in vectors]
    found = named or [*vectors.values()]
    if len(found) != 1 and not named:
        shown = ", ".join(f"{name} ({list(np.shape(array))})" for name, array in outputs.items())
        raise InvalidInput(f"the model gives the outputs {shown}; expected one vector, named 'embedding'")
    if size not in (None, found[0].size):
        raise InvalidInput(f"'dimensions' is {size}, but the model gives {found[0].size}")
    return np.ascontiguousarray(found[0])


def _ids_of(report: SlotReport) -> TensorSpec:
    if len(report.inputs) == 1 and report.inputs[0].dtype.startswith("int"):
        return report.inputs[0]
    takes = ", ".join(map(str, report.inputs)) or "inputs that it does not declare"
    raise InvalidInput(f"'input' has token ids, but the model takes {takes}; expected texts")


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)
