"""Hot restart: a new front end takes over the ports of a running one, and no connection is lost.

Front ends that the commands start have a Unix socket each, in a folder that only their user can read. The new process
asks the old one there for its ports; the answer has the sockets that listen for HTTP and HTTPS. Both processes then
accept connections from the same queue, which outlives each of them. gRPC takes no socket that listens already, so its
port is shared: the kernel leads all new connections to the new process, and none wait when the old one closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cluster_serving.frontend.server import sockets

_FOLDER = "CLUSTER_SERVING_SUCCESSION"
_OLD = "CLUSTER_SERVING_PREDECESSOR"
_TIMEOUT = 10.0
_MOST_PORTS = 8
_SERVING, _LEAVING = b"+", b"-"
_TAKE_OVER, _TAKEN = b"?", b"!"
_PORT = struct.Struct("!H")


def environment(folder: Path, old: int | None = None) -> dict[str, str]:
    """Return the environment variables of a front end that a new process may replace.

    Args:
        folder: Folder of the Unix sockets.
        old: Process group of the supervisors of the front end to replace; None for none.
    """
    variables = {_FOLDER: str(folder)}
    return variables if old is None else {**variables, _OLD: str(old)}


def is_serving(folder: Path, group: int) -> bool:
    """Return True if the front end of a process group of supervisors accepts connections on all its ports."""
    with contextlib.suppress(OSError), _connected(folder, group) as connection:
        return connection.recv(1) == _SERVING
    return False


class HotRestart:
    """The ports of a front end on their way from the old process, and to the new one.

    Args:
        folder: Folder of the Unix sockets.
        group: Process group of the supervisors of this front end.
        old: Process group of the supervisors of the old front end; None for none.

    Attributes:
        earlier_grpc_port: Port of the old process for gRPC; 0 for none, or if the old process does not say it.
    """

    def __init__(self, folder: Path, group: int, old: int | None) -> None:
        self._folder = folder
        self._group = group
        self._old = old
        self.earlier_grpc_port = 0
        self._to_old: socket.socket | None = None
        self._inherited: list[socket.socket] = []
        self._new_processes = 0
        self._state = _SERVING
        self._meeting: asyncio.Task[None] | None = None

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] = os.environ) -> HotRestart | None:
        """Return the hot restart of this process; None if it was not started by `environment`."""
        if not variables.get(_FOLDER):
            return None
        number = variables.get(_OLD)
        # The parent is a supervisor: the first one of its group, or one that has taken over from it.
        return cls(Path(variables[_FOLDER]), os.getpgid(os.getppid()), int(number) if number else None)

    @property
    def has_old(self) -> bool:
        """True if this front end has taken ports over, and their earlier owner has not ended before it answered."""
        return self._to_old is not None

    @property
    def has_new(self) -> bool:
        """True while a front end runs that has taken the ports over."""
        return self._new_processes > 0

    def take_over(self) -> None:
        """Ask the old process for its ports; without a living old process, there is nothing to take over."""
        if self._old is None:
            return
        with contextlib.suppress(OSError):
            connection = _connected(self._folder, self._old)
            connection.settimeout(_TIMEOUT)
            # A process that leaves still shares its port for gRPC.
            connection.recv(1)
            connection.send(_TAKE_OVER)
            text, descriptors, _, _ = socket.recv_fds(connection, len(_TAKEN) + _PORT.size, _MOST_PORTS)
            self._inherited = [socket.socket(fileno=descriptor) for descriptor in descriptors]
            # Open until this process ends, by which the old process knows that the new one lives.
            self._to_old = connection if text else None
            with contextlib.suppress(struct.error):
                (self.earlier_grpc_port,) = _PORT.unpack(text[len(_TAKEN) :])

    def inherited(self, address: tuple[object, ...]) -> socket.socket | None:
        """Return the socket that listens at an address; None if the old process had none."""
        for index, sock in enumerate(self._inherited):
            if sock.getsockname()[:2] == address[:2]:
                return self._inherited.pop(index)
        return None

    def offer(self, listening: Sequence[socket.socket], grpc_port: int | None) -> None:
        """Let a new process take over. From now on, `is_serving` is true.

        Args:
            listening: Sockets for HTTP and HTTPS.
            grpc_port: Port for gRPC; None for none.
        """
        for unused in self._inherited:
            unused.close()
        meeting = socket.socket(socket.AF_UNIX)
        # A process that was killed leaves its name behind.
        _name(self._folder, self._group).unlink(missing_ok=True)
        with _short(self._folder) as folder:
            meeting.bind(str(_name(folder, self._group)))
        meeting.listen()
        meeting.setblocking(False)
        self._meeting = asyncio.create_task(self._meet(meeting, listening, grpc_port))

    def leave(self) -> None:
        """Say that this front end accepts no more connections over HTTP."""
        self._state = _LEAVING

    def close(self) -> None:
        """Let no new process take over any more."""
        if self._meeting is not None:
            self._meeting.cancel()
            _name(self._folder, self._group).unlink(missing_ok=True)

    async def _meet(self, meeting: socket.socket, listening: Sequence[socket.socket], grpc_port: int | None) -> None:
        tasks = set()
        with meeting:
            while True:
                connection, _ = await asyncio.get_running_loop().sock_accept(meeting)
                task = asyncio.create_task(self._hand_over(connection, listening, grpc_port))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    async def _hand_over(
        self, connection: socket.socket, listening: Sequence[socket.socket], grpc_port: int | None
    ) -> None:
        loop = asyncio.get_running_loop()
        with connection, contextlib.suppress(OSError):
            connection.setblocking(False)
            await loop.sock_sendall(connection, self._state)
            # `is_serving` sends nothing.
            if not await loop.sock_recv(connection, 1):
                return
            # A server that is shutting down has already closed its sockets.
            still = [sock for sock in listening if sock.fileno() >= 0]
            for sock in still:
                # For a new process that listens on other addresses of the port.
                sockets.share_port(sock)
            for sock in sockets.of_port(grpc_port) if grpc_port else ():
                with sock:
                    sockets.share_port(sock)
            port = _PORT.pack(grpc_port or 0)
            socket.send_fds(connection, [_TAKEN + port], [sock.fileno() for sock in still])
            self._new_processes += 1
            try:
                await loop.sock_recv(connection, 1)
            finally:
                self._new_processes -= 1


def _name(folder: Path, group: int) -> Path:
    return folder / f"{group}.sock"


def _connected(folder: Path, group: int) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_TIMEOUT)
        with _short(folder) as short:
            connection.connect(str(_name(short, group)))
    except OSError:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[Path]:
    """Yield another path of a folder: the address of a Unix socket has at most 107 bytes."""
    descriptor = os.open(folder, os.O_DIRECTORY)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
