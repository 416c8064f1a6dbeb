"""Connections that stall."""

import socket
import threading


class StallingProxy:
    """Passes bytes between clients and a server: of each client only the first `most`, and none once it is forgotten.

    Attributes:
        address: Address of the proxy, as host and port.
    """

    def __init__(self, target, most=1 << 62):
        self._target = target.split(":")
        self._most = most
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections = []
        self._forgotten = set()
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc):
        for connection in (self._listener, *self._connections):
            connection.close()

    def forget(self):
        """Pass nothing on any more for the clients of now, and leave their connections open, as a load balancer may."""
        self._forgotten |= set(self._connections)

    def _accept(self):
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection((self._target[0], int(self._target[1])))
            self._connections += [client, server]
            for source, sink, most in ((client, server, self._most), (server, client, 1 << 62)):
                threading.Thread(target=self._pass, args=(source, sink, most), daemon=True).start()

    def _pass(self, source, sink, most):
        try:
            while most and (data := source.recv(min(most, 1 << 16))):
                if source in self._forgotten:
                    return
                sink.sendall(data)
                most -= len(data)
        except OSError:
            pass
