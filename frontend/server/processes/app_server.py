"""What the servers of all processes of a front end have: an application, and the connections of its clients."""

import asyncio
import gc
import logging
import socket
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np
import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import Server

from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server import tls
from cluster_serving.frontend.server.fast.protocol import drain, is_any_new, limited
from cluster_serving.protocol import tensors

log = logging.getLogger(__name__)

_NEW = 1.0
"""Seconds in which a new connection brings its first request."""

_GIVE_WAY = 0.001
"""Seconds after which a thread of Python lets another one that waits go on."""

_COLLECT_EVERY = 10_000
"""New objects after which the garbage collector looks at them, a millisecond of work."""

_LOOK_EVERY = 0.5
"""Seconds between two looks at the connections that are left."""

_LAST_LOOKS_EVERY = 0.01
"""Seconds between two looks at the requests that are left when the server ends."""

_DATE_EVERY = 1.0
"""Seconds between two updates of the header Date."""


class AppServer(Server):
    """Serves an application over the connections that it is given; answers all accepted requests before it ends.

    Args:
        app: The application.
        options: The options.
        stopping: Function that is called when the server begins to stop, and no other one takes its place.

    Attributes:
        tls: Context of connections with TLS; None if there are none.
    """

    # Before the first event loop runs, nothing waits for the exit.
    _should_exit = False
    _wake: Callable[[], object] | None = None

    def __init__(self, app: ASGIApp, options: HttpOptions, stopping: Callable[[], None]) -> None:
        self._protocols = limited(options, self.closed)
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=self._protocols,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                # Nothing asks for the address of a client.
                proxy_headers=False,
                timeout_keep_alive=options.keep_alive_timeout,
            )
        )
        self.tls = tls.server_context(options) if options.https_enabled else None
        self._stopping = stopping
        self._arriving: set[asyncio.Task[object]] = set()

    @property
    def should_exit(self) -> bool:
        """True if the server is to end. It begins at once, from any thread and from handlers of signals."""
        return self._should_exit

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._should_exit = value
        if value and self._wake is not None:
            self._wake()

    @property
    def connections(self) -> int:
        """Number of connections, also of those whose handshake of TLS goes on."""
        return len(self.server_state.connections) + len(self._arriving)

    def protocol(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def take(self, connection: socket.socket, context: ssl.SSLContext | None) -> None:
        """Serve a connection that was accepted, with TLS if there is a context."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(self.protocol, connection, ssl=context))
        self._arriving.add(task)
        task.add_done_callback(self._arrived)

    def closed(self) -> None:
        """Note that a connection has ended; called for each."""

    async def main_loop(self) -> None:
        """Serve until the server is to end. The loop of uvicorn would look ten times a second."""
        exit_ = asyncio.Event()
        self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, exit_.set)
        while not await self.on_tick(0):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(exit_.wait(), _DATE_EVERY)
        self._wake = None

    def drain(self, leaving: bool) -> None:
        """Let all further answers ask their clients to close the connection; if it is leaving, be not ready either."""
        if leaving:
            self._stopping()
        drain(self._protocols, self.server_state.connections)

    async def wait_for_clients(self, least: float, most: float) -> None:
        """Wait for some seconds: between the two for the end of the last connection."""
        began = time.monotonic()
        while (passed := time.monotonic() - began) < most and not self.force_exit:
            if passed >= least and not self.has_clients():
                break
            # For the header Date.
            await self.on_tick(0)
            await asyncio.sleep(min(most - passed, _LOOK_EVERY))

    def has_clients(self) -> bool:
        """Return True if there are connections."""
        return bool(self.connections)

    async def finish(self, timeout: int) -> None:
        """Answer the requests in progress and those of new connections, for some seconds, and close the application."""
        new_until = time.monotonic() + _NEW
        while self._arriving or is_any_new(self.server_state.connections):
            if time.monotonic() > new_until:
                break
            await asyncio.sleep(_LAST_LOOKS_EVERY)
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._answer_last(timeout)
        if not self.force_exit:
            # It waits for gRPC, and closes the front end.
            await self.lifespan.shutdown()

    async def _answer_last(self, timeout: int) -> None:
        """Wait for the end of the connections and their requests; cancel those that take longer than some seconds."""
        state, until = self.server_state, time.monotonic() + timeout
        while (state.connections or state.tasks) and not self.force_exit:
            if time.monotonic() > until:
                log.error("%d requests are cancelled: they take longer than shutdownTimeout", len(state.tasks))
                for task in state.tasks:
                    task.cancel(msg="the front end ends")
                break
            await asyncio.sleep(_LAST_LOOKS_EVERY)

    def _arrived(self, task: asyncio.Task[object]) -> None:
        self._arriving.discard(task)
        # A connection whose TLS handshake has failed counts no more.
        if task.cancelled() or task.exception() is not None:
            self.closed()


def run(server: AppServer) -> None:
    """Serve until SIGTERM or SIGINT; a worker, until the first process ends it."""
    # pyarrow imports pandas at its first array of texts, which would block the event loop for 0.2 s.
    tensors.encode({"x": np.array(["a"], object)})
    # Loaded modules stay; without them, the garbage collector saves pauses of tens of milliseconds.
    gc.collect()
    gc.freeze()
    # The requests in flight are hundreds of objects, which a collection would look at again every few requests.
    gc.set_threshold(_COLLECT_EVERY)
    # A thread that works on a large body gives way to the event loop after this time, not after 5 ms.
    sys.setswitchinterval(_GIVE_WAY)
    try:
        server.run()
    except KeyboardInterrupt:
        sys.exit(130)
