"""Cancellation of the work for clients that close the connection."""

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from cluster_serving.frontend.server import cycle

T = TypeVar("T")


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """Await the work for a request whose body has been read.

    Raises:
        ClientDisconnect: If the client has closed the connection; the work is cancelled then.
    """
    task = asyncio.current_task()
    disconnected = False

    def leave() -> None:
        nonlocal disconnected
        disconnected = True
        if task is not None:
            task.cancel()

    cycle.on_disconnect(request.receive, leave)
    try:
        return await work
    except asyncio.CancelledError:
        # Before 3.11, Python does not count cancellations.
        if disconnected and (sys.version_info < (3, 11) or task is None or task.uncancel() == 0):
            raise ClientDisconnect from None
        raise
    finally:
        cycle.on_disconnect(request.receive, None)
