"""A model folder that is tried on single records: for tests of handlers, and `cluster-serving-cli try`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cluster_serving.job.handlers.failure import HandlerFailed
from cluster_serving.job.options import JobOptions
from cluster_serving.job.postprocessing import Ranking
from cluster_serving.job.predictor import Predictor
from cluster_serving.job.record import Outputs, Value, convert
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ServingError
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
        self._predictor = Predictor.of(model) if isinstance(model, JobOptions) else Predictor(model)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, **inputs: Any) -> Outputs:
        """Compute one record; see `record.convert` for the inputs.

        Returns:
            Name → array, `str`, or the object of JSON; a ranking of `topN` has the name of its number.

        Raises:
            InvalidInput: If the inputs are refused.
            InferenceFailed: If the model or the handler fails; the message has the stack of the handler.
        """
        return self._computed(inputs)

    def pieces(self, **inputs: Any) -> list[Outputs]:
        """Compute one record as for a client that asks for pieces, and return them; see `__call__`."""
        pieces: list[Outputs] = []
        outputs = self._computed(inputs, pieces.append)
        return pieces or [outputs]

    def compute(
        self, inputs: Mapping[str, Value], on_piece: Callable[[Outputs], object] | None = None
    ) -> Outputs | ServingError:
        """Return the outputs of one record, or its error.

        A handler that generates gives its pieces to `on_piece`, as soon as they are made; there are no outputs then.
        """
        take = None if on_piece is None else lambda _, piece: on_piece(_numbered(piece))
        (outcome,) = self._predictor.predict([inputs], take)
        return outcome if isinstance(outcome, ServingError) else _numbered(outcome)

    def report(self) -> SlotReport:
        """Return the description of the model."""
        return self._predictor.report()

    def close(self) -> None:
        """Unload the handler and its models."""
        self._predictor.close()

    def _computed(self, inputs: Mapping[str, Any], on_piece: Callable[[Outputs], object] | None = None) -> Outputs:
        outcome = self.compute({name: convert(value, name) for name, value in inputs.items()}, on_piece)
        if isinstance(outcome, HandlerFailed):
            raise InferenceFailed(f"{outcome}\n{outcome.traceback}")
        if isinstance(outcome, ServingError):
            raise outcome
        return outcome


def _numbered(outputs: Outputs) -> Outputs:
    """Return rankings by their numbers, as clients get them, and other outputs as they are."""
    if not all(isinstance(value, Ranking) for value in outputs.values()):
        return outputs
    return {str(index): ranking for index, ranking in enumerate(outputs.values())}
