"""Cancellation of the work for clients that close the connection."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")

_PATIENCE = 0.05
"""Seconds after which the connection is watched: most requests are answered before."""


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """Await some work, and cancel the work if the client closes the connection.

    Args:
        request: The request, whose body has been read.
        work: The work.

    Raises:
        ClientDisconnect: If the client has closed the connection.
    """
    loop = asyncio.get_running_loop()
    watcher = _Watcher(request)
    # A task per request would be a tenth of what a small request costs.
    timer = loop.call_later(_PATIENCE, watcher.start, asyncio.current_task())
    try:
        return await work
    except asyncio.CancelledError:
        if watcher.disconnected and _uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        timer.cancel()
        watcher.stop()


def _uncancel() -> int:
    """Take one cancellation of this task back, and return the number of the others."""
    task = asyncio.current_task()
    # Before 3.11, Python does not count cancellations.
    return task.uncancel() if sys.version_info >= (3, 11) and task is not None else 0


class _Watcher:
    def __init__(self, request: Request) -> None:
        self._request = request
        self._task: asyncio.Task[None] | None = None
        self.disconnected = False

    def start(self, waiter: asyncio.Task[object] | None) -> None:
        self._task = asyncio.create_task(self._watch(waiter))

    def stop(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def _watch(self, waiter: asyncio.Task[object] | None) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.disconnected = True
        if waiter is not None:
            waiter.cancel()
