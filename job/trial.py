"""A model folder in the foreground, without Flink and Redis: for tests of handlers, and `cluster-serving-cli try`."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster_serving.connectors.answer import Answer
from cluster_serving.job.options import JobOptions, ModelOptions, RedisOptions
from cluster_serving.job.predictor import Predictor
from cluster_serving.job.request import Request
from cluster_serving.protocol.entry import NATIVE, PIECES, Entry
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ServingError
from cluster_serving.protocol.inputs import Image, Input, SparseTensor
from cluster_serving.protocol.number_lists import exact
from cluster_serving.protocol.results import decode_outputs, to_fields
from cluster_serving.protocol.slots import SlotReport

__all__ = ["InferenceFailed", "InvalidInput", "Trial"]


class Trial:
    """A loaded model folder, with its handler if it has one.

    Args:
        model: Path of the folder, or all options of a job.

    Raises:
        ModelError: If model or handler cannot be loaded; the cause is the exception of the handler.
    """

    def __init__(self, model: str | Path | JobOptions) -> None:
        options = model
        if not isinstance(options, JobOptions):
            folder = str(Path(options).absolute())
            options = JobOptions(uuid.uuid4().hex, ModelOptions(folder), RedisOptions("redis://localhost"))
        self._predictor = Predictor.of(options)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, **inputs: object) -> dict[str, Any]:
        """Compute one record; see `convert` for the inputs.

        Returns:
            Name → array, `str`, or the object of JSON; a ranking of `topN` has the name of its number.

        Raises:
            InvalidInput: If the inputs are refused.
            InferenceFailed: If the model or the handler fails; the message has the stack of the handler.
        """
        outcome, stack = self.compute({name: convert(value, name) for name, value in inputs.items()})
        if isinstance(outcome, ServingError):
            raise InferenceFailed(f"{outcome}\n{stack}") if stack else outcome
        return outcome

    def pieces(self, **inputs: object) -> list[dict[str, Any]]:
        """Compute one record as for a client that asks for pieces, and return them; see `__call__`."""
        pieces: list[dict[str, Any]] = []
        outcome, stack = self.compute({name: convert(value, name) for name, value in inputs.items()}, pieces.append)
        if isinstance(outcome, ServingError):
            raise InferenceFailed(f"{outcome}\n{stack}") if stack else outcome
        return pieces or [outcome]

    def compute(
        self, inputs: dict[str, Input], on_piece: Callable[[dict[str, Any]], object] | None = None
    ) -> tuple[dict[str, Any] | ServingError, str]:
        """Return the outputs of one record or its error, and the stack of the handler's exception, if it raised one.

        A handler that generates gives its pieces to `on_piece`, as soon as they are made; there are no outputs then.
        """
        entry = Entry(b"0-0", "trial", b"", NATIVE)
        if on_piece is not None:
            entry = entry._replace(reply_with=PIECES)
            self._predictor.send_pieces(_Pieces(on_piece))
        (answer,) = self._predictor.start([Request(entry, "", inputs)], alone=True).answers()
        if not answer.fields:
            return {}, ""
        try:
            return _outputs(answer.fields), ""
        except ServingError as error:
            return error, answer.letter.traceback if answer.letter else ""

    def report(self) -> SlotReport:
        """Return the description of the model."""
        return self._predictor.report()

    def close(self) -> None:
        """Unload the handler and its models."""
        self._predictor.close()


class _Pieces:
    """Place of pieces that are seen at once; see `connectors.pieces`."""

    def __init__(self, on_piece: Callable[[dict[str, Any]], object]) -> None:
        self._on_piece = on_piece

    def attempt(self, entries: Sequence[Entry]) -> _Pieces:
        return self

    def add(self, pieces: Mapping[int, Mapping[str, str | bytes]]) -> Sequence[int]:
        for fields in pieces.values():
            self._on_piece(_outputs(fields))
        return ()

    def answer(self, answers: Sequence[Answer]) -> None:
        pass


def _outputs(fields: Mapping[str, str | bytes]) -> dict[str, Any]:
    outputs = decode_outputs(to_fields(fields))
    if isinstance(outputs, list):
        return {str(index): ranking for index, ranking in enumerate(outputs)}
    return {name: array if array.ndim or array.dtype != object else array.item() for name, array in outputs.items()}


def convert(value: Any, name: str = "value") -> Input:
    """Return an input: an array or nested list of numbers or texts, a number, a text, bytes or a `Path` of an image."""
    if isinstance(value, Image | SparseTensor):
        return value
    if isinstance(value, Path):
        return Image(value.read_bytes())
    if isinstance(value, bytes):
        return Image(value)
    array = exact(name, value)
    return array.astype(object) if array.dtype.kind == "U" else array
