"""The application's side: queues, wire protocol, errors."""

from cluster_serving.client.aio import AsyncInputQueue, AsyncOutputQueue
from cluster_serving.client.errors import (
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
from cluster_serving.client.inputs import Image, SparseTensor
from cluster_serving.client.queues import InputQueue, OutputQueue

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
