"""Jobs whose slots run in the process of the tests, and a front end of all jobs of their Redis."""

import httpx
import pytest

from cluster_serving.frontend import arguments
from cluster_serving.job.timeouts import watched
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.running_slot import RunningJob


@pytest.fixture(autouse=True)
def hung(monkeypatch):
    """Calls that other tests have left, and that hang for ever, would end the process of the tests."""
    monkeypatch.setattr(watched, "_hung", [])


@pytest.fixture
def served(redis_server, tmp_path_factory):
    """Starts jobs by the keys of their configuration, and stops them after the test."""
    jobs = []

    def start(**settings):
        jobs.append(RunningJob(redis_server, tmp_path_factory.mktemp("config"), **settings))
        return jobs[-1].start()

    yield start
    for job in jobs:
        job.stop()


@pytest.fixture
def front_end(redis_server):
    """A front end of all jobs."""
    front_end = Running(arguments.read([f"--redisUrl={redis_server.url}", "--port=0", "--grpcPort=0"], {}))
    yield front_end
    front_end.stop()


@pytest.fixture
def front(front_end):
    """A client of that front end."""
    with httpx.Client(base_url=front_end.url, timeout=60) as client:
        yield client
