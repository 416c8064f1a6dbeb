"""The predictor of a slot in a program (docs/how-to/embedding.md)."""

from cluster_serving.job.predictor.predictor import Predictor

__all__ = ["Predictor"]
