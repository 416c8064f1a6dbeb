"""A worker of a front end: a further process that serves the connections which the first one gives it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

from starlette.types import ASGIApp

from cluster_serving.frontend.errors import Overloaded
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server.processes.app_server import AppServer
from cluster_serving.frontend.server.processes.channel import Answers, Channel
from cluster_serving.frontend.server.processes.workers import SOCKETS, TLS

log = logging.getLogger(__name__)


def sockets_from_environment() -> tuple[socket.socket, socket.socket] | None:
    """Return the sockets of this worker, for messages and for connections; None if this process is the first one."""
    numbers = os.environ.pop(SOCKETS, "")
    if not numbers:
        return None
    messages, connections = (socket.socket(fileno=int(number)) for number in numbers.split())
    return messages, connections


class WorkerServer(AppServer):
    """Serves an application over the connections that the first process accepts, and ends when that says so.

    Args:
        app: The application.
        options: The options.
        stopping: Function that is called when the front end begins to stop, and no other one takes its place.
        sockets: See `sockets_from_environment`.
        answers: Answers to the questions of the first process.
    """

    def __init__(
        self,
        app: ASGIApp,
        options: HttpOptions,
        stopping: Callable[[], None],
        sockets: tuple[socket.socket, socket.socket],
        answers: Answers,
    ) -> None:
        super().__init__(app, options, stopping)
        self._messages, self._given = sockets
        self._answers = {**answers, "drain": self._drain, "finish": self._finish}
        self._channel: Channel | None = None
        self._talk: asyncio.Task[None] | None = None
        # As if it had no clients: the first process has ended without a word.
        self._end: tuple[float, float, int] = 0, 0, options.shutdown_timeout

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections from now on."""
        await super().startup([])
        self._channel = await Channel.open(self._messages, self._answers)
        self._talk = asyncio.create_task(self._channel.run())
        self._talk.add_done_callback(self._alone)
        self._given.setblocking(False)
        asyncio.get_running_loop().add_reader(self._given, self._receive)
        self._channel.tell("ready")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the clients to leave, and answer the requests in progress."""
        least, most, timeout = self._end
        await self.wait_for_clients(least, most)
        while self._receive():
            pass
        asyncio.get_running_loop().remove_reader(self._given)
        await self.finish(timeout)
        if self._talk is not None:
            self._talk.cancel()

    async def ask(self, question: str, value: Any = None) -> Any:
        """Return the answer of the first process.

        Raises:
            Overloaded: If it does not answer.
        """
        try:
            return await self._channel.ask(question, value) if self._channel else None
        except (ConnectionError, asyncio.TimeoutError):
            raise Overloaded("the first process of the front end does not answer; ask again") from None

    def closed(self) -> None:
        """Tell the first process that there is a connection less."""
        if self._channel is not None:
            self._channel.tell("closed", 1)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ignore a signal, which all processes of a terminal get: the first one says when to end."""

    def _receive(self) -> bool:
        """Take a connection; return False if there is none."""
        try:
            kind, descriptors, _, _ = socket.recv_fds(self._given, 1, 1)
        except BlockingIOError:
            return False
        if not kind:
            # The first process has died.
            asyncio.get_running_loop().remove_reader(self._given)
        elif not descriptors:
            log.error("a connection was lost: this process has as many files open as it may (ulimit -n)")
            self.closed()
        for descriptor in descriptors:
            self.take(socket.socket(fileno=descriptor), self.tls if kind == TLS else None)
        return bool(kind)

    async def _drain(self, _: object) -> None:
        self.drain(leaving=True)

    async def _finish(self, how: tuple[float, float, int]) -> None:
        self._end = how
        self.drain(leaving=False)
        self.should_exit = True

    def _alone(self, _: asyncio.Task[None]) -> None:
        self.should_exit = True
