"""docker-compose.yml with real containers: a request, killed containers, and nothing left at the end."""

import os
import re
import uuid
from pathlib import Path

import httpx
import pytest

from cluster_serving.client import InputQueue, OutputQueue
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import wait_until
from tests.support.worlds import containers
from tests.support.worlds.containers import SLOW, call

ROOT = Path(__file__).parents[2]


class Composed:
    """The services of docker-compose.yml, with ports of their own."""

    def __init__(self):
        self.project = f"test-{uuid.uuid4().hex[:8]}"
        self.ports = {name: free_port() for name in ("redis", "flink", "http")}
        images = {"BASE": "base", "REDIS": "base", "CLIENT": "client", "FLINK": "flink"}
        self._environment = os.environ | {f"{key}_IMAGE": containers.image(name) for key, name in images.items()}
        self._environment |= {f"{name.upper()}_PORT": str(port) for name, port in self.ports.items()}
        self._command = [*containers.compose(), "--project-name", self.project]

    def run(self, *arguments):
        return call(*self._command, *arguments, cwd=ROOT, env=self._environment)

    def container(self, service):
        return self.run("ps", "--quiet", service).splitlines()[0]

    def kill(self, service):
        """Kill all processes of a container but its first, which ends with them."""
        container = self.container(service)
        call("docker", "exec", container, "sh", "-c", "kill -9 -1", check=False)
        wait_until(lambda: call("docker", "inspect", "--format={{.RestartCount}}", container) != "0", SLOW)

    def is_healthy(self, service):
        return call("docker", "inspect", "--format={{.State.Health.Status}}", self.container(service)) == "healthy"

    def left(self):
        """Return what Docker has of the project: containers, volumes and networks."""
        of_ours = f"--filter=label=com.docker.compose.project={self.project}"
        return [call("docker", kind, "ls", "--quiet", *more, of_ours) for kind, *more in _KINDS]


_KINDS = (("container", "--all"), ("volume",), ("network",))


@pytest.fixture
def composed():
    containers.needs_images()
    composed = Composed()
    try:
        composed.run("up", "--detach", "--no-build")
        yield composed
    finally:
        composed.run("down", "--volumes", "--timeout=10")
    assert composed.left() == ["", "", ""]


@pytest.mark.timeout(4 * SLOW)
def test_killed_containers_come_back_and_no_request_is_lost(composed, tmp_path):
    wait_until(lambda: composed.is_healthy("jobmanager"), SLOW)
    call("docker", "cp", f"{composed.container('jobmanager')}:/digits/images", tmp_path)
    images = sorted((tmp_path / "images").glob("*.png"))[:10]
    labels = [int(re.search(r"label(\d)", image.name)[1]) for image in images]

    ready = httpx.get(f"http://localhost:{composed.ports['http']}/health/ready", timeout=60)
    assert ready.json() == {"ready": True}
    assert "class" in composed.run("run", "--rm", "client")

    url = f"redis://localhost:{composed.ports['redis']}/0"
    with InputQueue(name="digits", url=url) as requests, OutputQueue(name="digits", url=url) as results:
        for service in ("taskmanager", "jobmanager"):
            early = [requests.enqueue(f"{service}-early-{image.name}", image=image) for image in images]
            composed.kill(service)
            late = [requests.enqueue(f"{service}-late-{image.name}", image=image) for image in images]
            answers = containers.results(results, early + late)
            # The most probable class comes first.
            found = [int(answer[0][0]) for answer in answers]
            assert sum(map(int.__eq__, found, labels * 2)) >= 18


@pytest.mark.parametrize("name", ["client", "flink"])
def test_an_image_has_no_root_no_compiler_and_tells_its_parts(name):
    containers.needs_images()
    run = ["docker", "run", "--rm", "--read-only", "--cap-drop=ALL", containers.image(name)]
    assert call(*run, "id", "-u") == "1000"
    assert call(*run, "sh", "-c", "command -v cc gcc pip", check=False) == ""
    parts = call(*run, "cat", "/opt/venv/sbom.cdx.json")
    assert '"CycloneDX"' in parts
    assert ('"apache-flink"' in parts) == (name == "flink")


def test_flinks_own_kubernetes_mode_finds_its_programs():
    containers.needs_images()
    run = ["docker", "run", "--rm", "--read-only", containers.image("flink"), "sh", "-c"]
    assert call(*run, "command -v kubernetes-jobmanager.sh") == "/opt/flink/bin/kubernetes-jobmanager.sh"
    assert "flink-python" in call(*run, "ls /opt/flink/lib /opt/flink/opt")
    assert call(*run, "$JAVA_HOME/bin/java -version 2>&1").startswith("openjdk version")
