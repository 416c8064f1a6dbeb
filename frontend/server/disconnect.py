"""Cancellation of the work for clients that close the connection."""

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")

_PATIENCE = 0.05
"""Seconds after which the connection is watched: most requests are answered before."""


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """Await the work for a request whose body has been read.

    Raises:
        ClientDisconnect: If the client has closed the connection; the work is cancelled then.
    """
    task = asyncio.current_task()
    watcher: asyncio.Task[None] | None = None
    disconnected = False

    async def watch() -> None:
        nonlocal disconnected
        while (await request.receive())["type"] != "http.disconnect":
            pass
        disconnected = True
        if task is not None:
            task.cancel()

    def start() -> None:
        nonlocal watcher
        watcher = asyncio.create_task(watch())

    # A task for each request would cost a tenth of a small request.
    timer = asyncio.get_running_loop().call_later(_PATIENCE, start)
    try:
        return await work
    except asyncio.CancelledError:
        # Before 3.11, Python does not count cancellations.
        if disconnected and (sys.version_info < (3, 11) or task is None or task.uncancel() == 0):
            raise ClientDisconnect from None
        raise
    finally:
        timer.cancel()
        if watcher is not None:
            watcher.cancel()
