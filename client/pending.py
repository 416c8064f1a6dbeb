"""A request on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from cluster_serving.protocol.keys import NORMAL
from cluster_serving.protocol.payload_files import PayloadFolder
from cluster_serving.protocol.results import Fields


@dataclass(slots=True, eq=False)
class Pending:
    """A request that waits for its result.

    Attributes:
        job: `jobName`.
        key: Result key.
        fields: What is sent.
        folder: Where its inputs were left, if they are not sent.
        result: Set once the result is there; of a submitted request, once it is queued.
        entry_id: Its entry in the stream, once it is queued.
        sent: When it was.
        kept: The result stays in Redis.
        waiters: How many wait for a result that is kept.
    """

    job: str
    key: str
    fields: Mapping[str, str | bytes]
    result: asyncio.Future[Fields]
    priority: str = NORMAL
    entry_id: bytes | None = None
    sent: float = 0.0
    kept: bool = False
    waiters: int = 0
    folder: PayloadFolder | None = None
