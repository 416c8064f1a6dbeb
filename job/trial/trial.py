"""A model folder that is tried on single records: for tests of handlers, and `cluster-serving-cli try`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cluster_serving.job.encoding import Ranking
from cluster_serving.job.failure import CodeFailed
from cluster_serving.job.predictor import Predictor
from cluster_serving.job.predictor.record import NamedOutputs, Value, convert
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ServingError

__all__ = ["InferenceFailed", "InvalidInput", "Trial"]


class Trial(Predictor):
    """A predictor that is called with the inputs of one record, and raises its error."""

    def __call__(self, **inputs: Any) -> NamedOutputs:
        """Compute one record; see `record.convert` for the inputs.

        Returns:
            Name → array, `str`, or the object of JSON; a ranking of `topN` has the name of its number.

        Raises:
            InvalidInput: If the inputs are refused.
            InferenceFailed: If the model or the handler fails; the message has the stack of the handler.
        """
        return self._computed(inputs)

    def pieces(self, **inputs: Any) -> list[NamedOutputs]:
        """Compute one record as for a client that asks for pieces, and return them; see `__call__`."""
        pieces: list[NamedOutputs] = []
        outputs = self._computed(inputs, pieces.append)
        return pieces or [outputs]

    def compute(
        self, inputs: Mapping[str, Value], on_piece: Callable[[NamedOutputs], object] | None = None
    ) -> NamedOutputs | ServingError:
        """Return the outputs of one record, or its error.

        A handler that generates gives its pieces to `on_piece`, as soon as they are made; there are no outputs then.
        """
        take = None if on_piece is None else lambda _, piece: on_piece(_numbered(piece))
        (outcome,) = self.predict([inputs], take)
        return outcome if isinstance(outcome, ServingError) else _numbered(outcome)

    def _computed(
        self, inputs: Mapping[str, Any], on_piece: Callable[[NamedOutputs], object] | None = None
    ) -> NamedOutputs:
        outcome = self.compute({name: convert(value, name) for name, value in inputs.items()}, on_piece)
        if isinstance(outcome, CodeFailed):
            raise InferenceFailed(f"{outcome}\n{outcome.traceback}")
        if isinstance(outcome, ServingError):
            raise outcome
        return outcome


def _numbered(outputs: NamedOutputs) -> NamedOutputs:
    """Return rankings by their numbers, as clients get them, and other outputs as they are."""
    if not all(isinstance(value, Ranking) for value in outputs.values()):
        return outputs
    return {str(index): ranking for index, ranking in enumerate(outputs.values())}
