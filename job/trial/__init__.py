"""A model folder that is tried on single records, as tests of handlers import it (docs/how-to/handlers.md)."""

from cluster_serving.job.trial.trial import InferenceFailed, InvalidInput, Trial

__all__ = ["InferenceFailed", "InvalidInput", "Trial"]
