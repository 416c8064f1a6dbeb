"""A front end in the process of the tests, for the jobs of the cluster."""

import httpx
import pytest

from cluster_serving.frontend import arguments
from tests.support.fixtures.front_end import Running


@pytest.fixture
def front(cluster):
    """A client of a front end of all jobs."""
    front = Running(
        arguments.read([f"--redisUrl=redis://127.0.0.1:{cluster.redis_port}", "--port=0", "--grpcPort=0"], {})
    )
    with httpx.Client(base_url=front.url, timeout=60) as client:
        yield client
    front.stop()
