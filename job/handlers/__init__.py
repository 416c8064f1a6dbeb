"""Your own code around a model; docs/how-to/handlers.md has examples."""

from cluster_serving.job.handlers.engine import Engine
from cluster_serving.job.handlers.failure import RecordFailed
from cluster_serving.job.handlers.handler import END, Context, Handler
from cluster_serving.protocol.errors import InvalidInput

__all__ = ["END", "Context", "Engine", "Handler", "InvalidInput", "RecordFailed"]
