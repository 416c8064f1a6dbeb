"""The client of applications: queues, inputs, results and errors."""

from cluster_serving.client import errors
from cluster_serving.client.abilities import Restarted
from cluster_serving.client.aio import AsyncInputQueue, AsyncOutputQueue
from cluster_serving.client.errors import *  # noqa: F403
from cluster_serving.client.queues import InputQueue, OutputQueue
from cluster_serving.client.result import Result
from cluster_serving.protocol.inputs import Image, SparseTensor

__all__ = [
    "AsyncInputQueue",
    "AsyncOutputQueue",
    "Image",
    "InputQueue",
    "OutputQueue",
    "Restarted",
    "Result",
    "SparseTensor",
]
__all__ += errors.__all__
