"""A gRPC call apart from its message: what its protocol shares with HTTP's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from cluster_serving.frontend.server.admission.body_memory import Share
from cluster_serving.protocol.keys import NORMAL

T = TypeVar("T")


@dataclass(slots=True)
class GrpcCall:
    """A gRPC call apart from its message.

    Attributes:
        timeout: Seconds until its deadline, or fewer that its metadata names; None for neither.
        stopping: Set when the server stops: a stream without an end of its own ends then.
        body: Memory of its messages.
        protocol: Label of the metrics.
        model: Name of its model, for metrics; empty until the model is known to exist.
        version: Version of the model that answered; empty until one has.
        priority: Priority in the queue of the job.
    """

    timeout: float | None
    stopping: asyncio.Event
    body: Share
    protocol: str = "grpc"
    model: str = ""
    version: str = ""
    priority: str = NORMAL

    def unless_gone(self, work: Awaitable[T]) -> Awaitable[T]:
        """Return the work: gRPC cancels the task of a call whose client has gone."""
        return work
