"""The port of the gRPC server: whether it is free, and which process gets its connections (Linux)."""

import contextlib
import ctypes
import socket
import struct

from cluster_serving.frontend.server.sockets import borrowed, share_port

_ATTACH_REUSEPORT_CBPF = 51
"""`SO_ATTACH_REUSEPORT_CBPF` of Linux, see `socket(7)`."""

_RETURN = 0x06
"""Instruction of classic BPF: return a constant."""


def count_connections(port: int) -> int:
    """Return the number of connections of this process that have a local port of TCP."""
    count = 0
    for sock in borrowed(port):
        with contextlib.suppress(OSError):
            # The socket that accepts connections does not count.
            count += not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return count


def can_listen(host: str, port: int, shared: bool) -> bool:
    """Return True if a socket could listen now; if `shared`, also beside a socket that shares its port."""
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                share_port(sock)
            sock.bind(address)
            return True
    return False


def take_connections(sock: socket.socket) -> None:
    """Let the second of two sockets that listen on one port get all new connections; without this each gets a share.

    Where the kernel allows no such rule, each gets its share.
    """
    # The program returns the index of a socket. An index that does not exist any more counts as no rule.
    instruction = ctypes.create_string_buffer(struct.pack("HBBI", _RETURN, 0, 0, 1))
    program = struct.pack("HL", 1, ctypes.addressof(instruction))
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _ATTACH_REUSEPORT_CBPF, program)
