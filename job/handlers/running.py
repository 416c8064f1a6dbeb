"""A batch of a handler that generates, from its first piece to its last."""

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from cluster_serving.job.handlers.failure import FAILURES, error_of
from cluster_serving.job.handlers.handler import END
from cluster_serving.job.handlers.records import PLAIN, Record, split
from cluster_serving.protocol.errors import ServingError


class Running:
    """A batch whose `predict` is a generator.

    Args:
        generator: What `predict` returned.
        count: Number of records in the batch.
        convert: Converts a piece, as `HandledModel.postprocess`.
        nothing: The whole outputs of a record without a piece.

    Attributes:
        keeps: For each record, True if its pieces are kept for `whole`.
    """

    def __init__(
        self,
        generator: Generator[Any, None, Any],
        count: int,
        convert: Callable[[Record], Record | ServingError],
        nothing: Record,
    ) -> None:
        self._generator = generator
        self._convert = convert
        self._nothing = nothing
        self._pieces: list[list[Record]] = [[] for _ in range(count)]
        self._returned: list[Record] | None = None
        self.keeps = [True] * count

    def advance(self) -> list[Any] | None:
        """Return the next piece of each record, None for no piece, `END`, or the error of `postprocess`.

        After the last step, None is returned instead.

        Raises:
            ServingError: If the generator raises an exception, or yields something else than pieces.
        """
        count = len(self.keeps)
        try:
            try:
                made = next(self._generator)
            except StopIteration as end:
                self._returned = None if end.value is None else split(end.value, count)
                return None
            step = [self._piece(one) for one in split(made, count, in_pieces=True)]
        except FAILURES as error:
            raise error_of(error, "predict") from error
        for index, piece in enumerate(step):
            if type(piece) is dict and self.keeps[index]:
                self._pieces[index].append(piece)
        return step

    def _piece(self, one: Any) -> Any:
        if isinstance(one, Exception):
            return error_of(one, "predict")
        return self._convert(one) if type(one) is dict else one

    def whole(self, index: int) -> Record | ServingError | None:
        """Return the whole outputs of a record; None if its pieces were not kept, and there is nothing else."""
        if self._returned is not None:
            whole: Record | ServingError = self._piece(self._returned[index])
            return whole
        if not self.keeps[index]:
            return None
        return joined(self._pieces[index]) or self._nothing

    def close(self) -> None:
        """End the generator where it is."""
        self._generator.close()


def run(running: Running) -> list[Record | ServingError]:
    """Run a batch to its end; return the whole outputs, or the error, of each record."""
    results: dict[int, Record | ServingError] = {}
    count = len(running.keeps)
    while len(results) < count and (step := running.advance()) is not None:
        for index, piece in enumerate(step):
            if index not in results and (piece is END or isinstance(piece, ServingError)):
                results[index] = (running.whole(index) or {}) if piece is END else piece
    running.close()
    return [results[index] if index in results else running.whole(index) or {} for index in range(count)]


def joined(pieces: Sequence[Record]) -> Record:
    """Return the whole of pieces, by name: texts are joined, numbers and arrays stacked, other objects listed.

    Arrays of different shapes are listed, too.
    """
    values: dict[str, list[Any]] = {}
    for piece in pieces:
        for name, value in piece.items():
            values.setdefault(name, []).append(value)
    return {name: _joined(parts) for name, parts in values.items()}


def _joined(parts: list[Any]) -> Any:
    if all(isinstance(part, str) for part in parts):
        return "".join(parts)
    if all(isinstance(part, (*PLAIN, np.ndarray)) for part in parts):
        arrays = [np.asarray(part) for part in parts]
        if len({array.shape for array in arrays}) == 1:
            return np.stack(arrays)
    return parts
