"""Clients that do not read their answers, as the kernel sees them (Linux).

The buffers of a server do not tell: with TLS they are empty, and a slow client may leave them as they were.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios

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
