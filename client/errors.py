"""The errors of a client: those of `protocol.errors`."""

# ruff: noqa: F403, F405 - `__all__` says which of them.
from cluster_serving.protocol.errors import *

__all__ = [
    "DeadlineExceeded",
    "EngineMissing",
    "InferenceFailed",
    "InferenceTimeout",
    "InvalidInput",
    "ModelError",
    "PoisonRequest",
    "QueueFull",
    "RedisUnavailable",
    "RequestCancelled",
    "RequestLost",
    "RequestTooLarge",
    "ResultTimeout",
    "ServingError",
    "VersionNotFound",
]
