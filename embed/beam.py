"""A model in Apache Beam: `RunInference(ClusterServing(Predictor("model")))`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apache_beam.ml.inference.base import ModelHandler, PredictionResult

from cluster_serving.embed.predictor import Predictor


class ClusterServing(ModelHandler):
    """Handler of `RunInference`; an element is a record, and its inference the outputs by name, or the error.

    Args:
        predictor: The model.
        options: Limits of Beam's batches, such as `max_batch_size`.
    """

    def __init__(self, predictor: Predictor, **options: int) -> None:
        self._predictor, self._options = predictor, options

    def load_model(self) -> Predictor:
        """Load the model."""
        self._predictor.report()
        return self._predictor

    def run_inference(
        self, batch: Sequence[Any], model: Predictor, inference_args: Mapping[str, Any] | None = None
    ) -> Iterator[PredictionResult]:
        """Yield the result of each record."""
        for record, outcome in zip(batch, model.records(batch), strict=True):
            yield PredictionResult(record, outcome)

    def batch_elements_kwargs(self) -> dict[str, Any]:
        """Return the limits of batches."""
        return self._options
