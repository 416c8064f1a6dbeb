"""A real server on a free port, in front of a real Redis with an echoing consumer."""

import threading
from contextlib import suppress

import httpx
import pytest

from cluster_serving.client.protocol import slots_key
from cluster_serving.client.slots import JOBS_KEY, SlotReport, TensorSpec
from cluster_serving.frontend import app, arguments
from cluster_serving.frontend.front_end import FrontEnd
from cluster_serving.frontend.grpc_server import GrpcServer
from cluster_serving.frontend.server import HttpServer


class Running:
    """A front end in a thread of its own, with an event loop of its own."""

    def __init__(self, options):
        listening = threading.Event()
        self.front = FrontEnd(options)
        self.server = HttpServer(app.make(self.front), options, lambda urls: listening.set(), GrpcServer(self.front))
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


@pytest.fixture
def report(db, job):
    """Reports a loaded model for the job of the test, as a task slot does."""

    def report(*inputs, **changes):
        specs = tuple(TensorSpec(*spec) for spec in inputs)
        made = SlotReport("", "ready", "Echo", specs, specs, **changes)
        db.sadd(JOBS_KEY, job)
        db.hset(slots_key(job), "0", made.to_json())

    yield report
    db.srem(JOBS_KEY, job)
    db.delete(slots_key(job))


@pytest.fixture
def serve(redis_server, job):
    """Starts front ends with options as on the command line; they are stopped after the test."""
    running = []

    def serve(*options):
        words = [
            f"--redisUrl={redis_server.url}",
            f"--redisInputQueue={job}",
            "--port=0",
            "--securePort=0",
            "--grpcPort=0",
            *options,
        ]
        running.append(Running(arguments.read(words, {})))
        return running[-1]

    yield serve
    for front in running:
        with suppress(RuntimeError):
            front.stop()


@pytest.fixture
def ask(serve, report, echo):
    """A client of a front end whose job echoes vectors."""
    report(("x", "float32", (None, None)))
    with httpx.Client(base_url=serve().url, timeout=30) as client:
        yield client
