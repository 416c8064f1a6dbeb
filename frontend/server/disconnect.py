"""Giving up a request whose client went away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")

_PATIENCE = 0.05
"""Seconds after which it is worth watching for the client: most requests are answered before."""


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """Await some work; cancel it if the client goes away. The body must have been read.

    Raises:
        ClientDisconnect: It went away.
    """
    loop = asyncio.get_running_loop()
    watcher = _Watcher(request)
    # A task per request would be a tenth of what a small request costs.
    timer = loop.call_later(_PATIENCE, watcher.start, asyncio.current_task())
    try:
        return await work
    except asyncio.CancelledError:
        if watcher.gone and (task := asyncio.current_task()) is not None and task.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        timer.cancel()
        watcher.stop()


class _Watcher:
    def __init__(self, request: Request) -> None:
        self._request = request
        self._task: asyncio.Task[None] | None = None
        self.gone = False

    def start(self, waiter: asyncio.Task[object] | None) -> None:
        self._task = asyncio.create_task(self._watch(waiter))

    def stop(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def _watch(self, waiter: asyncio.Task[object] | None) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if waiter is not None:
            waiter.cancel()
