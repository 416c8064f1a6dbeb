"""The sockets of this process, also those of libraries that do not show them, as gRPC (Linux)."""

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterator

_ATTACH_REUSEPORT_CBPF = 51
"""`SO_ATTACH_REUSEPORT_CBPF` of Linux, see `socket(7)`."""

_RETURN = 0x06
"""Instruction of classic BPF: return a constant."""


def of_port(port: int) -> Iterator[socket.socket]:
    """Yield a duplicate of each socket of this process that has a local port of TCP; the caller closes it."""
    for sock in _borrowed(port):
        with contextlib.suppress(OSError):
            # `dup` of the socket would make it blocking, also for its owner.
            yield socket.socket(fileno=os.dup(sock.fileno()))


def count_connections(port: int) -> int:
    """Return the number of connections of this process that have a local port of TCP."""
    count = 0
    for sock in _borrowed(port):
        with contextlib.suppress(OSError):
            count += not listens(sock)
    return count


def listens(sock: socket.socket) -> bool:
    """Return True if a socket accepts connections."""
    return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def can_listen(host: str, port: int, shared: bool) -> bool:
    """Return True if a socket could listen now; `shared`: also beside one that lets others share its port."""
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                share_port(sock)
            sock.bind(address)
            return True
    return False


def share_port(sock: socket.socket) -> None:
    """Let a further socket of this user, which asks for it too, listen on the port of a socket."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def take_connections(sock: socket.socket) -> None:
    """Let the second of two sockets that listen on one port get all new connections; without this each gets a share.

    Where the kernel allows no such rule, each gets its share.
    """
    # The program returns the index of a socket. An index that does not exist any more counts as no rule.
    instruction = ctypes.create_string_buffer(struct.pack("HBBI", _RETURN, 0, 0, 1))
    program = struct.pack("HL", 1, ctypes.addressof(instruction))
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _ATTACH_REUSEPORT_CBPF, program)


def _borrowed(port: int) -> Iterator[socket.socket]:
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
