"""A gRPC call apart from its message: what its protocol shares with HTTP's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from cluster_serving.frontend.server import asked
from cluster_serving.frontend.server.admission.body_memory import Share

T = TypeVar("T")


@dataclass(slots=True)
class GrpcCall:
    """A gRPC call apart from its message.

    Attributes:
        deadline: Seconds until its deadline; None if it has none.
        metadata: Its metadata by name; several texts of one name are one, with commas.
        stopping: Set when the server stops: a stream without an end of its own ends then.
        body: Memory of its messages.
        protocol: Label of the metrics.
        model: Name of its model, for metrics; empty until the model is known to exist.
        version: Version of the model that answered; empty until one has.
    """

    deadline: float | None
    metadata: Mapping[str, Any]
    stopping: asyncio.Event
    body: Share
    protocol: str = "grpc"
    model: str = ""
    version: str = ""

    @property
    def timeout(self) -> float | None:
        """Seconds until its deadline, or fewer that the metadata x-timeout-ms allows; None without both.

        Raises:
            InvalidInput: If the metadata is not a number above 0.
        """
        allowed = asked.seconds("metadata x-timeout-ms", self.metadata.get("x-timeout-ms"))
        limits = [limit for limit in (self.deadline, allowed) if limit is not None]
        return min(limits, default=None)

    @property
    def priority(self) -> str:
        """Priority in the queue of the job, from the metadata x-priority; `NORMAL` without it.

        Raises:
            InvalidInput: If the metadata names another priority than those of `PRIORITIES`.
        """
        return asked.priority("metadata x-priority", self.metadata.get("x-priority"))

    def unless_gone(self, work: Awaitable[T]) -> Awaitable[T]:
        """Return the work: gRPC cancels the task of a call whose client has gone."""
        return work
