"""Clients of gRPC that do not read their answers (Linux)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import time
from typing import Any

from cluster_serving.frontend.server import sockets
from cluster_serving.frontend.server.unread import CAN_TELL, bytes_read, drop_rest

_CONTROL_BYTES = 4096
"""More bytes than gRPC sends for itself, such as pings, while no client reads an answer."""


class PendingAnswers:
    """Answers that gRPC has got and not sent yet, for instance since a client leaves one of its calls unread."""

    def __init__(self) -> None:
        self._since: dict[Any, float] = {}

    def begin(self, context: Any) -> None:
        """Note that an answer to the call of a context is handed to gRPC."""
        self._since[context] = time.monotonic()

    def end(self, context: Any) -> None:
        """Note that the answer is sent, or the call has ended."""
        self._since.pop(context, None)

    def peers(self, seconds: float) -> frozenset[str]:
        """Return the clients, as gRPC names them, of answers that have been pending for so long."""
        latest = time.monotonic() - seconds
        return frozenset(context.peer() for context, since in self._since.items() if since <= latest)


async def hang_up_on_port(port: int, seconds: float, pending: PendingAnswers) -> None:
    """Shut down the connections of a port of this process whose clients read nothing for so long; never return.

    For gRPC, which shows neither its sockets nor the progress of its answers. An answer may wait in the kernel, or in
    gRPC while its client reads the connection but not the call. gRPC can end a single call only for its client.
    """
    read: dict[object, tuple[int, int]] = {}
    while CAN_TELL:
        await asyncio.sleep(seconds)
        before, read = read, {}
        waiting = pending.peers(seconds)
        for sock in sockets.of_port(port):
            # A socket that listens has no client.
            with sock, contextlib.suppress(OSError):
                client = sock.getpeername()
                count, left = bytes_read(sock)
                last, last_left = before.get(client, (-_CONTROL_BYTES, 0))
                is_unread = left and last_left and count == last
                if is_unread or (_peer(client) in waiting and count - last < _CONTROL_BYTES):
                    drop_rest(sock)
                    sock.shutdown(socket.SHUT_RDWR)
                else:
                    read[client] = count, left


def _peer(address: tuple[Any, ...]) -> str:
    """Return the name that gRPC gives to the address of a client."""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    mapped = host.ipv4_mapped if host.version == 6 else host
    return f"ipv4:{mapped}:{address[1]}" if mapped else f"ipv6:%5B{host}%5D:{address[1]}"
