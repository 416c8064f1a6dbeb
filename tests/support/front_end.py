"""A front end in the process of the tests."""

import socket
import threading

import httpx

from cluster_serving.frontend import app
from cluster_serving.frontend.context import FrontEnd


class Running:
    """A front end in a thread of its own, with an event loop of its own."""

    def __init__(self, options):
        listening = threading.Event()
        self.front = FrontEnd(options)
        self.server = app.make(self.front, lambda urls: listening.set())
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()
        assert listening.wait(30)
        self.urls = self.server.urls

    @property
    def url(self):
        return self.urls[0]

    @property
    def grpc(self):
        """Address of gRPC, as gRPC clients write it."""
        return self.urls[-1].partition("://")[2]

    def stop(self):
        self.server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()


def connect(url):
    """Open a TCP connection to a front end."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(30)
    return connection


def accepts(url):
    """Return True if a front end accepts connections."""
    try:
        httpx.get(f"{url}/health/live")
    except httpx.ConnectError:
        return False
    return True
