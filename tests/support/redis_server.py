"""A Valkey or Redis of the tests' own."""

import os
import signal
import socket
import subprocess
import time

import pytest
import redis

from cluster_serving.launcher.services import redis_program


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def programs():
    """The program that the commands would start, and those whose differences CLUSTER_SERVING_TEST_REDIS asks for."""
    return [redis_program.find(), *filter(None, os.environ.get("CLUSTER_SERVING_TEST_REDIS", "").split(os.pathsep))]


on_each_server = pytest.mark.parametrize("redis_server", programs(), indirect=True, ids=str)
"""Runs a test on each of `programs`: Valkey and versions of Redis differ in what it is about."""


class RedisServer:
    """A server on a port of its own, which tests may stop and start again; other machines need its password.

    `options` are of its command line. The program is the one that the commands would start.
    """

    def __init__(self, folder, *options, host="127.0.0.1", password="", program=None):
        self._options = options
        self._program = program or redis_program.find()
        self.folder = folder
        self.host = host
        self.password = password
        self.port = free_port()
        self.url = f"redis://{f':{password}@' if password else ''}{host}:{self.port}/0"
        self.start()

    def start(self):
        arguments = ["--port", str(self.port), "--bind", self.host, "--dir", str(self.folder)]
        if self.password:
            arguments += ["--requirepass", self.password]
        self._process = subprocess.Popen(
            [self._program, *arguments, "--appendonly", "yes", "--save", "", *self._options], stdout=subprocess.DEVNULL
        )
        with redis.Redis.from_url(self.url) as client:
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                try:
                    client.ping()
                    return
                except redis.ConnectionError:
                    time.sleep(0.02)
        raise AssertionError(f"{self._program} did not start")

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
