"""A record that a program gives to a predictor, and what the program gets for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike

from cluster_serving.job.encoding import Encoding
from cluster_serving.job.ways import CONVERSION
from cluster_serving.protocol.errors import InvalidInput, ServingError
from cluster_serving.protocol.inputs import Image, Input, SparseTensor
from cluster_serving.protocol.signature import Signature, signature

Value = ArrayLike | Path | Input
"""Input of a record: array or nested list of numbers or texts, number, text, bytes or `Path` of an image file."""

NamedOutputs = dict[str, Any]
"""Outputs by name: array, `str`, the object of JSON, or a `encoding.Ranking`."""


class ProgramRecord(NamedTuple):
    """A record of a program (`computation.Answerable`); its answer is its position, with its outputs or its error."""

    entry: int
    inputs: Mapping[str, Input]
    signature: Signature = ()
    error: ServingError | None = None
    in_pieces: bool = False
    counted: bool = False
    rows: int = 0

    def each(self) -> list[ProgramRecord]:
        """Return the record."""
        return [self]

    @classmethod
    def of(cls, position: int, values: Mapping[str, Value], in_pieces: bool) -> ProgramRecord:
        """Convert the inputs of a record."""
        try:
            inputs = {name: convert(value, name) for name, value in values.items()}
            return cls(position, inputs, signature(inputs), in_pieces=in_pieces)
        except ServingError as error:
            return cls(position, {}, error=error)
        except (ValueError, OSError) as error:
            return cls(position, {}, error=InvalidInput(f"the inputs cannot be read: {error}"))

    def content(self, outputs: Any, encoding: Encoding) -> NamedOutputs:
        """Return outputs as the program gets them; raise `ServingError` if a filter does not fit them."""
        return encoding.values(outputs)

    def answer(self, content: NamedOutputs) -> tuple[int, NamedOutputs | ServingError]:
        """Return the answer with outputs."""
        return self.entry, content

    def succeed(self, outputs: Any, encoding: Encoding) -> tuple[int, NamedOutputs | ServingError]:
        """Return the answer with outputs, or with the error if a filter does not fit them."""
        try:
            return self.entry, encoding.values(outputs)
        except ServingError as error:
            return self.entry, error

    def end(self, said: Mapping[str, Any], encoding: Encoding) -> tuple[int, NamedOutputs | ServingError]:
        """Return the answer whose pieces were sent, which is empty."""
        return self.answer({})

    def fail(self, error: ServingError) -> tuple[int, NamedOutputs | ServingError]:
        """Return the answer with an error."""
        return self.entry, error


class PieceFunction:
    """Place of pieces (`pieces.Writer`): a function, which takes the position of a record and its piece."""

    def __init__(self, on_piece: Callable[[int, NamedOutputs], object], positions: Sequence[int] = ()) -> None:
        self._on_piece = on_piece
        self._positions = positions

    def attempt(self, entries: Sequence[int]) -> PieceFunction:
        """Begin to answer the records of these positions."""
        return PieceFunction(self._on_piece, entries)

    def add(self, pieces: Mapping[int, NamedOutputs]) -> Sequence[int]:
        """Hand pieces to the function; the caller wants all pieces."""
        for index, piece in pieces.items():
            self._on_piece(self._positions[index], piece)
        return ()

    def answer(self, answers: Sequence[object]) -> None:
        """Do nothing: the program gets all answers together."""


def convert(value: Value, name: str = "value") -> Input:
    """Return an input as the job has it.

    Raises:
        InvalidInput: If numbers of a list would change beside others.
        ValueError: If lists differ in length.
        OSError: If a file cannot be read.
    """
    if isinstance(value, Image | SparseTensor):
        return value
    if isinstance(value, Path):
        return Image(value.read_bytes())
    if isinstance(value, bytes):
        return Image(value)
    array = value if isinstance(value, np.ndarray) else CONVERSION.of_list(name, cast("Sequence[Any]", value))
    return array.astype(object) if array.dtype.kind == "U" else array
