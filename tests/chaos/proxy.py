"""A TCP proxy that can stall, delay and cut: the network between a job and its Redis."""

import contextlib
import socket
import threading
import time

from tests.support.fixtures.redis_server import free_port


class Proxy:
    """Forwards a port of its own to another one.

    Attributes:
        port: Where it listens.
        delay: Seconds that every piece of data takes.
    """

    def __init__(self, target):
        self.port = free_port()
        self.delay = 0.0
        self._target = target
        self._flows = threading.Event()
        self._flows.set()
        self._open = set()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self):
        """Hold everything back; connections stay open."""
        self._flows.clear()

    def resume(self):
        """Go on."""
        self._flows.set()

    def cut(self):
        """Break all connections."""
        for connection in list(self._open):
            connection.close_both()

    def close(self):
        self._listener.close()
        self.resume()
        self.cut()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target), 5)
            except OSError:
                near.close()
                continue
            self._open.add(_Connection(self, near, far))


class _Connection:
    def __init__(self, proxy, near, far):
        self._proxy, self._ends = proxy, (near, far)
        far.settimeout(None)
        for end in self._ends:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink in (self._ends, self._ends[::-1]):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                self._proxy._flows.wait()
                if self._proxy.delay:
                    time.sleep(self._proxy.delay)
                sink.sendall(data)
        except OSError:
            pass
        self.close_both()

    def close_both(self):
        self._proxy._open.discard(self)
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
