"""A real server on a free port, in front of a real Redis with an echoing consumer."""

from contextlib import suppress

import grpc
import httpx
import pytest

from cluster_serving.frontend import arguments
from cluster_serving.frontend.models import leased_work
from cluster_serving.frontend.proto import inference
from cluster_serving.frontend.server.admission.keys import new_key
from cluster_serving.protocol.keys import JOBS_KEY, JobKeys
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.grpc_calls import caller


@pytest.fixture
def report(db, job):
    """Reports a loaded model for the job of the test, as a task slot does."""

    reported = set()

    def report(*inputs, job=job, **changes):
        specs = tuple(TensorSpec(*spec) for spec in inputs)
        fields = {"submission": "", "state": "ready", "engine": "Echo", "inputs": specs, "outputs": specs}
        made = SlotReport(**fields | changes)
        reported.add(job)
        db.sadd(JOBS_KEY, job)
        db.hset(JobKeys(job).slots(), "0", made.to_json())

    yield report
    for name in reported:
        db.srem(JOBS_KEY, name)
        db.delete(JobKeys(name).slots())


@pytest.fixture
def serve(redis_server, job):
    """Starts front ends with options as on the command line; they are stopped after the test."""
    running = []

    def serve(*options):
        words = [
            f"--redisUrl={redis_server.url}",
            f"--redisInputQueue={job}",
            f"--requiredModels={job}",
            "--port=0",
            "--securePort=0",
            "--grpcPort=0",
            "--drainSeconds=0",
            *options,
        ]
        running.append(Running(arguments.read(words, {})))
        return running[-1]

    yield serve
    for front in running:
        with suppress(RuntimeError):
            front.stop()


@pytest.fixture
def quick_turns(monkeypatch):
    """Front ends look at queued work ten times a second."""
    monkeypatch.setattr(leased_work, "TURN", 0.1)


@pytest.fixture
def ask(serve, report, echo):
    """A client of a front end whose job echoes vectors."""
    report(("x", "float32", (None, None)))
    with httpx.Client(base_url=serve().url, timeout=30) as client:
        yield client


@pytest.fixture
def vectors(report):
    """A model of vectors of any length."""
    report(("x", "float32", (None, None)))


@pytest.fixture
def front(serve, report, echo):
    """A front end whose job echoes tensors of all types."""
    report(("x", "", (None, None)))
    return serve()


@pytest.fixture
def channel(front):
    """A gRPC channel to `front`."""
    with grpc.insecure_channel(front.grpc) as channel:
        yield channel


@pytest.fixture
def infer(channel, job):
    """Sends a ModelInferRequest for the job of the test."""
    call = caller(channel, "inference.GRPCInferenceService")

    def infer(message, **options):
        message.model_name = job
        return call("ModelInfer", message, inference.ModelInferResponse, **options)

    return infer


@pytest.fixture
def keys(tmp_path):
    """A file of API keys, and the key in it."""
    key, line = new_key("alice")
    file = tmp_path / "keys"
    file.write_text(f"# of the team\n\n{line}\n")
    return file, key
