"""One Redis and one Flink cluster for all end-to-end tests, started by the product's own commands."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import redis
import yaml
from cluster_serving.client import InputQueue, OutputQueue
from cluster_serving.client.protocol import DEFAULT_JOB

BIN = Path(sys.executable).parent


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

    def start(self, **settings):
        """Start a job; returns the finished command."""
        name = settings.get("jobName", DEFAULT_JOB)
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        config = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
        (folder / "config.yaml").write_text(yaml.safe_dump(config | self._addresses))
        return self.run("cluster-serving-start", cwd=folder)

    def restart(self, name):
        return self.run("cluster-serving-restart", cwd=self.folder / name)

    def stop(self, name):
        return self.run("cluster-serving-stop", name, cwd=self.folder / name)

    def queues(self, name):
        return InputQueue(port=self.redis_port, name=name), OutputQueue(port=self.redis_port, name=name)

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


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
