"""Images and clusters that a contributor names in variables; tests that need them are skipped without."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager

import pytest

from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import wait_until

TAG = os.environ.get("CLUSTER_SERVING_TEST_TAG")
"""Tag of the images that `python -m tests.support.worlds.images` has built."""

SLOW = 900
"""Seconds for what starts several JVMs, on a machine that others use."""


def image(name):
    return f"cluster-serving-{name}:{TAG}"


def needs_images():
    if not TAG:
        pytest.skip("needs images: run python -m tests.support.worlds.images, and set CLUSTER_SERVING_TEST_TAG=test")


def call(*command, check=True, **options):
    """Run a command. Return its output, without the spaces around it."""
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=SLOW, check=False, **options)
    assert not check or ran.returncode == 0, f"{' '.join(map(str, command))}\n{ran.stdout}{ran.stderr}"
    return ran.stdout.strip()


def compose():
    """Return the command of Compose that this machine has, as a list."""
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    pytest.skip("needs docker compose")


@contextmanager
def port_forward(kubectl, target, port):
    """Give a port of a pod or a service as a port of this machine."""
    local = free_port()
    command = [*kubectl, "port-forward", target, f"{local}:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _listens(local), SLOW)
        yield local
    finally:
        process.terminate()
        process.wait()


def _listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def results(requests, uris):
    """Return the results of requests, in order, as soon as they are there."""
    deadline = time.monotonic() + SLOW
    return [requests.query(uri, timeout=max(1, deadline - time.monotonic())) for uri in uris]
