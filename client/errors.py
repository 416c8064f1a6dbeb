"""The errors of a client: those of `protocol.errors`."""

from cluster_serving.protocol.errors import (
    DeadlineExceeded,
    EngineMissing,
    InferenceFailed,
    InferenceTimeout,
    InvalidInput,
    ModelError,
    PoisonRequest,
    QueueFull,
    RedisUnavailable,
    RequestCancelled,
    RequestTooLarge,
    ResultTimeout,
    ServingError,
)

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
    "RequestTooLarge",
    "ResultTimeout",
    "ServingError",
]
