"""The application's side: queues, wire protocol, errors."""

from cluster_serving.client.aio import AsyncInputQueue, AsyncOutputQueue
from cluster_serving.client.queues import InputQueue, OutputQueue
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
from cluster_serving.protocol.inputs import Image, SparseTensor

__all__ = [
    "AsyncInputQueue",
    "AsyncOutputQueue",
    "DeadlineExceeded",
    "EngineMissing",
    "Image",
    "InferenceFailed",
    "InferenceTimeout",
    "InputQueue",
    "InvalidInput",
    "ModelError",
    "OutputQueue",
    "PoisonRequest",
    "QueueFull",
    "RedisUnavailable",
    "RequestCancelled",
    "RequestTooLarge",
    "ResultTimeout",
    "ServingError",
    "SparseTensor",
]
