"""Encoding of the outputs of a record: filters, and then the fields of a result, or values for Python."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from cluster_serving.protocol.errors import InferenceFailed, ServingError
from cluster_serving.protocol.inputs import Array
from cluster_serving.protocol.results import (
    RankedClasses,
    decode_arrays,
    encode_result,
    is_ranked,
    ranking_of,
    to_fields,
)
from cluster_serving.protocol.token_counts import TokenCounts

Columns = tuple[Sequence[str], Sequence[Array]]
"""Names of outputs, and an array for each."""

Fields = dict[str, str | bytes]
Encoder = Callable[[bool, Sequence[str], Sequence[Array]], Fields]
"""Makes the fields of a result hash: (native encoding?, output names, one record's outputs) → fields.

`encode_result` is the one without filters.
"""


class Unfit(InferenceFailed):
    """A filter that does not fit an output.

    Attributes:
        always: True if it fits no other sizes of the output, either.
    """

    always = True


class Ranking(RankedClasses):
    """Classes with their values, best first, as `topN` returns them."""


class Counter(Protocol):
    """Counts the tokens of texts (`models.token_counter`)."""

    def counts(self, wanted: bytes, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> TokenCounts:
        """Return the counts of a record, of the inputs that are `wanted` and of the text among its outputs."""


class Encoding:
    """Encoding of the outputs of models, which are `Columns`.

    Args:
        encode: Applies the filters, and makes the fields of a result.

    Attributes:
        is_plain: True if there is no filter.
        counter: Counts tokens; None if the model has no tokenizer.
    """

    def __init__(self, encode: Encoder) -> None:
        self._encode = encode
        self.is_plain = encode is encode_result
        self.counter: Counter | None = None

    def fields(self, native: bool, outputs: Any) -> Mapping[str, str | bytes]:
        """Return the fields of a result hash, in our encoding (`native`) or the original's.

        Raises:
            ServingError: If a filter does not fit the outputs, or they cannot be sent.
        """
        try:
            return self._encode(native, *outputs)
        except ServingError:
            raise
        except Exception as error:
            # Outputs of an unexpected type concern this record alone.
            raise InferenceFailed(f"the outputs cannot be sent: {type(error).__name__}: {error}") from error

    def counts(self, wanted: bytes, inputs: Mapping[str, Any], outputs: Any) -> TokenCounts:
        """Return the numbers of tokens that a client wants, of one record; see `Counter.counts`."""
        return self.counter.counts(wanted, inputs, self.named(outputs)) if wanted and self.counter else {}

    def named(self, outputs: Any) -> Mapping[str, Any]:
        """Return the outputs of one record by name."""
        return dict(zip(*outputs, strict=False))

    def columns(self, outputs: Any) -> Columns | None:
        """Return outputs that can be sent along with those of other records; None if they need `fields`."""
        return outputs if self.is_plain else None

    def values(self, outputs: Any) -> dict[str, Any]:
        """Return the outputs as a client of a job gets them: array, `str`, the object of JSON, or `Ranking`.

        Raises:
            ServingError: See `fields`.
        """
        if self.is_plain and type(outputs) is tuple and len(outputs[0]) == len(outputs[1]):
            # Outputs of a model, unlike those of a handler, can always be sent.
            return {name: _value(array) for name, array in zip(*outputs, strict=True)}
        fields = to_fields(self.fields(True, outputs))
        arrays = decode_arrays(fields)
        if is_ranked(fields):
            return {name: Ranking(ranking_of(array)) for name, array in arrays.items()}
        return {name: _value(array) for name, array in arrays.items()}


def _value(array: Array) -> Any:
    return array if array.ndim or array.dtype != object else array.item()
