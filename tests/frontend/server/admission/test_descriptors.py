"""The limit of open files, and idle connections."""

import resource
import subprocess
from contextlib import ExitStack

import httpx
import psutil
import pytest

from tests.support.fixtures.commands import BIN
from tests.support.fixtures.front_end import connect


@pytest.fixture
def launch(redis_server, job, vectors, echo):
    """Starts front ends with limits of open files."""
    with ExitStack() as stack:

        def launch(soft, hard, *options):
            command = [
                *(BIN / "cluster-serving-http", f"--redisUrl={redis_server.url}", f"--redisInputQueue={job}"),
                *("--port=0", "--grpcEnabled=false", "--drainSeconds=0"),
            ]
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, *options],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
                )
            )
            stack.callback(process.kill)
            line = process.stdout.readline()
            return process, line.split(" at ")[1].strip()

        yield launch


def predict(client):
    return client.post("/predict", json={"instances": [{"x": [1, 2]}]})


def test_the_soft_limit_is_raised_as_far_as_connections_need(launch):
    process, _ = launch(64, 4096, "--maxConnections=1000")
    assert psutil.Process(process.pid).rlimit(psutil.RLIMIT_NOFILE) == (1256, 4096)


def test_idle_connections_beyond_the_limit_of_open_files_put_no_client_out(launch):
    process, url = launch(64, 300)
    assert "maxConnections is 150 instead of 10000" in process.stderr.readline()
    with ExitStack() as stack, httpx.Client(base_url=url, timeout=30) as client:
        assert predict(client).status_code == 200
        idle = [stack.enter_context(connect(url)) for _ in range(600)]
        for _ in range(3):
            assert predict(client).status_code == 200
        # One too many is told so, at once or with its first request.
        with httpx.Client(base_url=url, timeout=30) as late:
            try:
                assert predict(late).json()["code"] == "OVERLOADED"
            except httpx.TransportError:
                assert b"OVERLOADED" in idle[-1].recv(1000)
        for connection in idle:
            connection.close()
        with httpx.Client(base_url=url, timeout=30, transport=httpx.HTTPTransport(retries=5)) as late:
            while predict(late).status_code != 200:
                pass
