"""The server of the first process: HTTP, HTTPS and gRPC, on all ports of the options."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.types import ASGIApp

from cluster_serving.frontend.errors import StartError
from cluster_serving.frontend.options import HttpOptions
from cluster_serving.frontend.server.processes.app_server import AppServer
from cluster_serving.frontend.server.processes.hot_restart import HotRestart
from cluster_serving.frontend.server.processes.workers import Workers
from cluster_serving.frontend.server.sockets import share_port
from cluster_serving.protocol.errors import ServingError

if TYPE_CHECKING:
    from cluster_serving.frontend.server.grpc.server import GrpcServer

log = logging.getLogger(__name__)

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_ACCEPT_AGAIN = 1.0


class HttpServer(AppServer):
    """Serves an application on all ports of the options; answers all accepted requests before it stops.

    Args:
        app: The application.
        options: The options.
        ready: Function that is called with the URLs when the server listens.
        prepare: Coroutine function that must succeed before the server takes over the ports of another one.
        reach: Coroutine function that fails without Redis; the server says why.
        stopping: Function that is called when the server begins to stop, and no other one takes over its ports.
        grpc: Server for gRPC, which is started and stopped with this one; None for none.
        hot_restart: Takes the ports over from an old process and offers them to a new one; None if neither can be.
        workers: Further processes, which get most connections over HTTP; None for none.

    Attributes:
        urls: URLs of all ports; empty until the server listens.
    """

    def __init__(
        self,
        app: ASGIApp,
        options: HttpOptions,
        ready: Callable[[list[str]], None],
        prepare: Callable[[], Awaitable[object]],
        reach: Callable[[], Awaitable[object]],
        stopping: Callable[[], None],
        grpc: GrpcServer | None,
        hot_restart: HotRestart | None,
        workers: Workers | None,
    ) -> None:
        super().__init__(app, options, stopping)
        self.urls: list[str] = []
        self._listening: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self._options = options
        self._ready = ready
        self._looking: asyncio.Task[None] | None = None
        self._prepare = prepare
        self._reach = reach
        self._grpc = grpc
        self._hot_restart = hot_restart
        self._workers = workers

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on all ports, or raise `StartError`."""
        options, hot_restart = self._options, self._hot_restart
        if hot_restart is not None:
            hot_restart.take_over()
        wanted = [("http", options.port)] if options.plain_http_enabled else []
        wanted += [("https", options.secure_port)] if self.tls else []
        bound = [self._bind(port) for _, port in wanted]
        beside = hot_restart is not None and hot_restart.has_old
        if beside:
            await self._prepare()
        if self._workers is not None:
            await self._workers.start()
        if self._grpc is not None:
            await self._grpc.start(beside, hot_restart.earlier_grpc_port if hot_restart else 0)
        await super().startup([])
        for (scheme, _), sock in zip(wanted, bound, strict=True):
            await self._listen(sock, self.tls if scheme == "https" else None)
            self.urls.append(f"{scheme}://{options.url_host}:{sock.getsockname()[1]}")
        if self._grpc is not None:
            self.urls.append(self._grpc.url)
        if hot_restart is not None:
            hot_restart.offer(bound, self._grpc.port if self._grpc else None)
        self._ready(self.urls)
        if not beside:
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        """Say why the server is not ready, if it begins without Redis."""
        try:
            await self._reach()
        except ServingError as error:
            log.warning("requests get 503, and /health/ready with the reason, until Redis answers: %s", error)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the clients leave; then accept no more requests, and answer those in progress.

        Each answer over HTTP asks its client to close the connection. Without a new process, the clients have
        `drainSeconds`, in which the server is not ready. Otherwise the new process accepts the connections; the server
        waits for the end of its own, which gRPC clients give up by their age, and for the answers of all requests.
        """
        options, hot_restart, workers = self._options, self._hot_restart, self._workers
        drain_seconds = options.drain_seconds
        if hot_restart is not None and hot_restart.has_new:
            timeout = math.ceil(options.longest_answer)
            self._close_listeners()
            hot_restart.leave()
            self.drain(leaving=False)
            if workers is not None:
                workers.finish(drain_seconds, options.handover_timeout, timeout)
            await self.wait_for_clients(drain_seconds, options.handover_timeout)
        else:
            timeout = options.shutdown_timeout
            self.drain(leaving=True)
            if workers is not None:
                workers.drain()
            await self.wait_for_clients(drain_seconds, drain_seconds)
            self._close_listeners()
            if workers is not None:
                workers.finish(0, 0, timeout)
        if self._grpc is not None:
            self._grpc.begin_stop(timeout)
        await self.finish(timeout)
        if workers is not None:
            await workers.ended(lambda: self.force_exit)
        if hot_restart is not None:
            hot_restart.close()

    def has_clients(self) -> bool:
        """Return True if there are connections, those over gRPC included, or work apart from requests."""
        return super().has_clients() or (self._grpc is not None and self._grpc.has_connections)

    async def _listen(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        loop, backlog = asyncio.get_running_loop(), self.config.backlog
        self._listening.append((sock, context))
        if self._workers is None:
            self.servers.append(await loop.create_server(self.protocol, sock=sock, ssl=context, backlog=backlog))
            return
        sock.setblocking(False)
        sock.listen(backlog)
        loop.add_reader(sock, self._accept, sock, context, self._workers)

    def _accept(self, sock: socket.socket, context: ssl.SSLContext | None, workers: Workers) -> None:
        """Accept a connection for the process that has the fewest."""
        try:
            connection, _ = sock.accept()
        except OSError as error:
            # Otherwise the client has left, or another process was first.
            if error.errno in _EXHAUSTED:
                log.error("no connection can be accepted for %g s: %s", _ACCEPT_AGAIN, error.strerror)
                loop = asyncio.get_running_loop()
                loop.remove_reader(sock)
                loop.call_later(_ACCEPT_AGAIN, self._accept_again, sock, context, workers)
            return
        if not workers.give(connection, context is not None, self.connections):
            self.take(connection, context)

    def _accept_again(self, sock: socket.socket, context: ssl.SSLContext | None, workers: Workers) -> None:
        if (sock, context) in self._listening:
            asyncio.get_running_loop().add_reader(sock, self._accept, sock, context, workers)

    def _close_listeners(self) -> None:
        """Take no more connections but those that wait to be taken, whose clients would see a reset."""
        # The sockets of the servers would be closed with them.
        kept = [(sock.dup(), context) for sock, context in self._listening]
        for server in self.servers:
            server.close()
        if self._workers is not None:
            for sock, _ in self._listening:
                asyncio.get_running_loop().remove_reader(sock)
                sock.close()
        self._listening.clear()
        for sock, context in kept:
            with sock, suppress(OSError):
                sock.setblocking(False)
                while True:
                    self.take(sock.accept()[0], context)

    def _bind(self, port: int) -> socket.socket:
        interface, hot_restart = self._options.interface, self._hot_restart
        try:
            family, _, _, _, address = socket.getaddrinfo(interface, port, type=socket.SOCK_STREAM)[0]
            if hot_restart is not None and (sock := hot_restart.inherited(address)) is not None:
                return sock
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6 and socket.has_dualstack_ipv6():
                # As gRPC does: `::` has the addresses of IPv4, too.
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            if hot_restart is not None and hot_restart.has_old:
                share_port(sock)
            sock.bind(address)
        except OSError as error:
            raise StartError(
                f"cannot listen on {interface} port {port}: {error.strerror}; set another interface or port (port, "
                "securePort), or stop what uses this one"
            ) from None
        return sock
