"""A connection that stalls."""

import socket
import threading


class StallingProxy:
    """Passes bytes between clients and a server, but of each client only the first `most`.

    Attributes:
        address: Address of the proxy, as host and port.
    """

    def __init__(self, target, most):
        self._target = target.split(":")
        self._most = most
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc):
        for connection in (self._listener, *self._connections):
            connection.close()

    def _accept(self):
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection((self._target[0], int(self._target[1])))
            self._connections += [client, server]
            for source, sink, most in ((client, server, self._most), (server, client, 1 << 62)):
                threading.Thread(target=_pass, args=(source, sink, most), daemon=True).start()


def _pass(source, sink, most):
    try:
        while most and (data := source.recv(min(most, 1 << 16))):
            sink.sendall(data)
            most -= len(data)
    except OSError:
        pass
