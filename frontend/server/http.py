"""The server: uvicorn with HTTP, HTTPS and gRPC in one process."""

import asyncio
import gc
import socket
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import Server

from cluster_serving.frontend.errors import StartError
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server import tls
from cluster_serving.frontend.server.grpc import GrpcServer
from cluster_serving.frontend.server.protocol import drain, is_any_new, limited

_NEW = 1.0
"""Seconds in which a new connection brings its first request."""


class HttpServer(Server):
    """Serves an application on all ports of the options; answers all accepted requests before it stops.

    The server calls `ready` with its URLs when it listens, and `stopping` when it begins to stop. It starts and stops
    the gRPC server, if there is one.

    Attributes:
        urls: URLs of all ports; empty until the server listens.
    """

    def __init__(
        self,
        app: ASGIApp,
        options: HttpOptions,
        ready: Callable[[list[str]], None],
        stopping: Callable[[], None],
        grpc: GrpcServer | None,
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
                timeout_keep_alive=options.keep_alive_timeout,
                timeout_graceful_shutdown=options.shutdown_timeout,
            )
        )
        self.urls: list[str] = []
        self._listening: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self._options = options
        self._ready = ready
        self._stopping = stopping
        self._grpc = grpc
        self._tls = tls.server_context(options) if options.https_enabled else None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on all ports, or raise `StartError`."""
        options = self._options
        wanted = [("http", options.port)] if options.plain_http_enabled else []
        wanted += [("https", options.secure_port)] if self._tls else []
        bound = [self._bind(port) for _, port in wanted]
        if self._grpc is not None:
            await self._grpc.start()
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
        self._ready(self.urls)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain for `drainSeconds`; then accept no more requests, and answer those in progress.

        During the drain, requests are answered, and each answer asks its client to close the connection.
        """
        self._stopping()
        drain(self._connections, self.server_state.connections)
        drained_at = time.monotonic() + self._options.drain_seconds
        while (left := drained_at - time.monotonic()) > 0 and not self.force_exit:
            await asyncio.sleep(min(left, 0.1))
        if self._grpc is not None:
            self._grpc.begin_stop()
        accepted = self._close_listeners()
        # The requests of new connections are on their way.
        new_until = time.monotonic() + _NEW
        while not all(task.done() for task in accepted) or is_any_new(self.server_state.connections):
            if time.monotonic() > new_until:
                break
            await asyncio.sleep(0.01)
        # The last step is the end of the lifespan, which waits for gRPC and closes the front end.
        await super().shutdown(sockets)

    def _close_listeners(self) -> list[asyncio.Task[object]]:
        """Take no more connections but those that wait to be taken, whose clients would see a reset."""
        loop = asyncio.get_running_loop()
        # The sockets of the servers would be closed with them.
        kept = [(sock.dup(), context) for sock, context in self._listening]
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
        interface = self._options.interface
        try:
            family = socket.getaddrinfo(interface, port, type=socket.SOCK_STREAM)[0][0]
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((interface, port))
        except OSError as error:
            raise StartError(f"cannot listen on {interface} port {port}: {error.strerror}") from None
        return sock


def run(server: HttpServer) -> None:
    """Serve until SIGTERM or SIGINT."""
    # Loaded modules stay; without them, the garbage collector saves pauses of tens of milliseconds.
    gc.collect()
    gc.freeze()
    try:
        server.run()
    except KeyboardInterrupt:
        sys.exit(130)
