"""Predictor: records in, results out, as a slot of a job computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cluster_serving.job.batcher import Batcher
from cluster_serving.job.predicting import Predicting
from cluster_serving.job.predictor.record import NamedOutputs, PieceFunction, ProgramRecord, Value
from cluster_serving.protocol.errors import InferenceTimeout, ServingError
from cluster_serving.protocol.signature import any_size


class Predictor(Predicting):
    """A model folder, with its handler if it has one, that answers records as a job does.

    See `Predicting` for the arguments.

    Example:
        >>> with Predictor("model") as predictor:
        ...     predictor.predict([{"x": [1, 2, 3]}, {"x": "cat"}])
        [{'y': array([2., 4., 6.], dtype=float32)}, InvalidInput("input 'x' is ...")]
    """

    def predict(
        self, records: Sequence[Mapping[str, Value]], on_piece: Callable[[int, NamedOutputs], object] | None = None
    ) -> list[NamedOutputs | ServingError]:
        """Answer records; those of one signature share calls of the model, and one that fails leaves the others alone.

        Args:
            records: Inputs of each record by name, which are checked and converted as those of a request: arrays of the
                shape and dtype that `report` has, without the batch dimension, or of `max_batch_size` records with it;
                nested lists, numbers, texts; bytes or a `Path` for an image file.
            on_piece: Takes position and outputs of each piece, as soon as a handler has made it. The outputs of the
                record are then empty.

        Returns:
            The outputs of each record by name, or its error: `InvalidInput` for wrong inputs, `InferenceFailed` if the
            model or the handler fails on it, and `InferenceTimeout` after the time limit. An output is an array without
            the batch dimension, `str`, or the object of JSON; after `topN`, a list of class and value.

        Raises:
            Exception: Any that `on_piece` raises.
        """
        self.send_pieces(PieceFunction(on_piece) if on_piece else None)
        batcher: Batcher[ProgramRecord] = Batcher(self._batch.max_batch_size, 0)
        batches = []
        for position, values in enumerate(records):
            record = ProgramRecord.of(position, values, in_pieces=on_piece is not None)
            key = any_size(record.signature) if self._padding else record.signature
            batches.append(batcher.add(key, record, 0) or [])
        missing = InferenceTimeout("too many calls of the model hang, so it is not called any more; end this process")
        results: dict[int, NamedOutputs | ServingError] = dict.fromkeys(range(len(records)), missing)
        for batch in filter(None, [*batches, *batcher.flush()]):
            results |= self.start(batch, alone=True).answers()
        return [*results.values()]
