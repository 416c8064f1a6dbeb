"""The sockets of this process, also those of libraries that do not show them, as gRPC (Linux)."""

import contextlib
import os
import socket
from collections.abc import Iterator


def of_port(port: int) -> Iterator[socket.socket]:
    """Yield a duplicate of each socket of this process that has a local port of TCP; the caller closes it."""
    for sock in borrowed(port):
        with contextlib.suppress(OSError):
            # `dup` of the socket would make it blocking, also for its owner.
            yield socket.socket(fileno=os.dup(sock.fileno()))


def share_port(sock: socket.socket) -> None:
    """Let a further socket of this user, which asks for it too, listen on the port of a socket."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def borrowed(port: int) -> Iterator[socket.socket]:
    """Yield each socket of a port as it is; its owner may close it at any time."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                sock = socket.socket(fileno=int(name))
                try:
                    if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getsockname()[1] == port:
                        yield sock
                finally:
                    sock.detach()
