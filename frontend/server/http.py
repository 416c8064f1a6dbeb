"""The server: uvicorn with HTTP, HTTPS and gRPC in one process."""

import asyncio
import gc
import math
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import numpy as np
import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import Server

from cluster_serving.frontend.errors import StartError
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server import tls
from cluster_serving.frontend.server.grpc import GrpcServer
from cluster_serving.frontend.server.protocol import drain, is_any_new, limited
from cluster_serving.frontend.server.sockets import share_port
from cluster_serving.frontend.server.succession import Succession
from cluster_serving.protocol import tensors

_NEW = 1.0
"""Seconds in which a new connection brings its first request."""

_GIVE_WAY = 0.001
"""Seconds after which a thread of Python lets another one that waits go on."""

_COLLECT_EVERY = 10_000
"""New objects after which the garbage collector looks at them, a millisecond of work."""

_LOOK_EVERY = 0.5
"""Seconds between two looks at the connections that are left."""


class HttpServer(Server):
    """Serves an application on all ports of the options; answers all accepted requests before it stops.

    Args:
        app: The application.
        options: The options.
        ready: Function that is called with the URLs when the server listens.
        prepare: Coroutine function that must succeed before the server takes over the ports of another one.
        stopping: Function that is called when the server begins to stop, and no other one takes over its ports.
        is_busy: Function that returns True while there is work apart from requests.
        grpc: Server for gRPC, which is started and stopped with this one; None for none.
        succession: The way to the servers before and after this one; None if there are none.

    Attributes:
        urls: URLs of all ports; empty until the server listens.
    """

    def __init__(
        self,
        app: ASGIApp,
        options: HttpOptions,
        ready: Callable[[list[str]], None],
        prepare: Callable[[], Awaitable[object]],
        stopping: Callable[[], None],
        is_busy: Callable[[], bool],
        grpc: GrpcServer | None,
        succession: Succession | None,
    ) -> None:
        self._connections = limited(options)
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=self._connections,
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                # Nothing asks for the address of a client.
                proxy_headers=False,
                timeout_keep_alive=options.keep_alive_timeout,
                timeout_graceful_shutdown=options.shutdown_timeout,
            )
        )
        self.urls: list[str] = []
        self._listening: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self._options = options
        self._ready = ready
        self._prepare = prepare
        self._stopping = stopping
        self._is_busy = is_busy
        self._grpc = grpc
        self._succession = succession
        self._tls = tls.server_context(options) if options.https_enabled else None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on all ports, or raise `StartError`."""
        options, succession = self._options, self._succession
        if succession is not None:
            succession.take_over()
        wanted = [("http", options.port)] if options.plain_http_enabled else []
        wanted += [("https", options.secure_port)] if self._tls else []
        bound = [self._bind(port) for _, port in wanted]
        beside = succession is not None and succession.has_predecessor
        if beside:
            await self._prepare()
        if self._grpc is not None:
            await self._grpc.start(beside)
        await super().startup(bound[:1] if wanted[0][0] == "http" else [])
        if self._tls is not None:
            loop = asyncio.get_running_loop()
            self.servers.append(
                await loop.create_server(self._protocol, sock=bound[-1], ssl=self._tls, backlog=self.config.backlog)
            )
        for (scheme, _), sock in zip(wanted, bound, strict=True):
            self._listening.append((sock, self._tls if scheme == "https" else None))
            self.urls.append(f"{scheme}://{options.url_host}:{sock.getsockname()[1]}")
        if self._grpc is not None:
            self.urls.append(self._grpc.url)
        if succession is not None:
            succession.offer(bound, self._grpc.port if self._grpc else None)
        self._ready(self.urls)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the clients leave; then accept no more requests, and answer those in progress.

        Each answer over HTTP asks its client to close the connection. Without a successor, the clients have
        `drainSeconds`, in which the server is not ready. Otherwise the successor accepts the connections; the server
        waits for the end of its own, which gRPC clients give up by their age, and for the answers of all requests.
        """
        accepted: list[asyncio.Task[object]] = []
        timeout, patience = self._options.shutdown_timeout, self._options.drain_seconds
        has_successor = False
        if self._succession is not None and self._succession.has_successor:
            has_successor = True
            accepted += self._close_listeners()
            self._succession.leave()
            timeout, patience = math.ceil(self._options.longest_answer), self._options.patience
        else:
            self._stopping()
        drain(self._connections, self.server_state.connections)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < patience and not self.force_exit:
            if has_successor and passed >= self._options.drain_seconds and not self._has_clients():
                break
            # For the header Date.
            await self.on_tick(0)
            await asyncio.sleep(min(patience - passed, _LOOK_EVERY))
        if self._grpc is not None:
            self._grpc.begin_stop(timeout)
        accepted += self._close_listeners()
        # The requests of new connections are on their way.
        new_until = time.monotonic() + _NEW
        while not all(task.done() for task in accepted) or is_any_new(self.server_state.connections):
            if time.monotonic() > new_until:
                break
            await asyncio.sleep(0.01)
        self.config.timeout_graceful_shutdown = timeout
        # The last step is the end of the lifespan, which waits for gRPC and closes the front end.
        await super().shutdown(sockets)
        if self._succession is not None:
            self._succession.close()

    def _has_clients(self) -> bool:
        connected = self.server_state.connections or (self._grpc is not None and self._grpc.has_connections)
        return bool(connected) or self._is_busy()

    def _close_listeners(self) -> list[asyncio.Task[object]]:
        """Take no more connections but those that wait to be taken, whose clients would see a reset."""
        loop = asyncio.get_running_loop()
        # The sockets of the servers would be closed with them.
        kept = [(sock.dup(), context) for sock, context in self._listening]
        self._listening.clear()
        for server in self.servers:
            server.close()
        accepted: list[asyncio.Task[object]] = []
        for sock, context in kept:
            with sock, suppress(OSError):
                sock.setblocking(False)
                while True:
                    connection, _ = sock.accept()
                    taken = loop.connect_accepted_socket(self._protocol, connection, ssl=context)
                    accepted.append(loop.create_task(taken))
                    # A handshake of TLS may fail.
                    accepted[-1].add_done_callback(lambda task: task.cancelled() or task.exception())
        return accepted

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def _bind(self, port: int) -> socket.socket:
        interface, succession = self._options.interface, self._succession
        try:
            family, _, _, _, address = socket.getaddrinfo(interface, port, type=socket.SOCK_STREAM)[0]
            if succession is not None and (sock := succession.inherited(address)) is not None:
                return sock
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if succession is not None and succession.has_predecessor:
                share_port(sock)
            sock.bind(address)
        except OSError as error:
            raise StartError(f"cannot listen on {interface} port {port}: {error.strerror}") from None
        return sock


def run(server: HttpServer) -> None:
    """Serve until SIGTERM or SIGINT."""
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
