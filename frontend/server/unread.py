"""Clients that do not read their answers, as the kernel sees them (Linux).

The buffers of a server do not tell: with TLS they are empty, and a slow client may leave them as they were.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Iterator

CAN_TELL = hasattr(socket, "TCP_INFO")
"""True on Linux."""

_BYTES_ACKED = 120
"""Place of `tcpi_bytes_acked` in the `tcp_info` of Linux."""


def bytes_read(sock: socket.socket) -> tuple[int, int]:
    """Return the number of bytes that a client's machine has taken, and of those that it has to take."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    left = fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4))
    return struct.unpack_from("Q", info, _BYTES_ACKED)[0], struct.unpack("i", left)[0]


def drop_rest(sock: socket.socket) -> None:
    """Let the kernel drop what the client has not read once the socket is closed, instead of keeping it for a while."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def hang_up_on_port(port: int, seconds: float) -> None:
    """Shut down the connections of a port of this process whose clients read nothing for so long; never return.

    For a server that shows neither its sockets nor the progress of its answers, as gRPC.
    """
    read: dict[tuple[object, ...], int] = {}
    while CAN_TELL:
        await asyncio.sleep(seconds)
        before, read = read, {}
        for sock, client in _connections(port):
            with sock, contextlib.suppress(OSError):
                count, left = bytes_read(sock)
                if left and before.get(client) == count:
                    drop_rest(sock)
                    sock.shutdown(socket.SHUT_RDWR)
                elif left:
                    read[client] = count


def _connections(port: int) -> Iterator[tuple[socket.socket, tuple[object, ...]]]:
    """Yield a duplicate of each connected socket of a local port, and the address of its client."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            sock = socket.socket(fileno=os.dup(int(name)))
            try:
                if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getsockname()[1] == port:
                    yield sock, sock.getpeername()
                    continue
            except OSError:
                # A socket that listens has no client.
                pass
            sock.close()
