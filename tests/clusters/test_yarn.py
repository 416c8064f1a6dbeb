"""A job on a YARN cluster, deployed by a user who has no rights on the nodes."""

import pytest

from tests.support.fixtures.asking import Asking
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo
from tests.support.worlds import yarn

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def cluster_of_nodes(tmp_path_factory):
    yarn.require()
    cluster = yarn.Yarn(tmp_path_factory.mktemp("yarn"))
    yield cluster
    cluster.close()


@pytest.fixture
def nodes(cluster_of_nodes):
    """The cluster, where no job of the tests runs and nothing is left behind afterwards."""
    before = cluster_of_nodes.leftovers()
    yield cluster_of_nodes
    if cluster_of_nodes.application():
        cluster_of_nodes.run("cluster-serving-stop", "digits")
    assert cluster_of_nodes.application() is None
    assert cluster_of_nodes.leftovers() == before


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model_zoo.save_openvino_digits(folder)
    return folder


def test_a_job_survives_its_containers_and_is_changed_beside_itself(nodes, model, tmp_path):
    nodes.configure(model)
    started = nodes.run("cluster-serving-start")
    assert started.returncode == 0, started.stdout + started.stderr
    application = nodes.application().id

    listed = nodes.run("cluster-serving-cli", "list")
    assert application in listed.stdout, listed.stderr
    assert "RUNNING" in nodes.run("cluster-serving-cli", "status").stdout

    asking = Asking(nodes.queue)
    asking.start()
    try:
        asking.goes_on()
        before = nodes.taskmanagers()
        nodes.kill(next(iter(before)))
        wait_until(lambda: nodes.taskmanagers() - before, 200)
        asking.goes_on()
        attempt = nodes.attempt(application)
        nodes.kill(attempt)
        wait_until(lambda: nodes.attempt(application) != attempt, 200)
        wait_until(nodes.taskmanagers, 200)
        asking.goes_on()

        scaled = nodes.run("cluster-serving-cli", "scale", "2")
        assert scaled.returncode == 0, scaled.stdout + scaled.stderr
        assert [found["allocatedVCores"] for found in nodes.applications()] == [1 + 2]
        asking.goes_on()

        (tmp_path / "broken.onnx").write_bytes(b"no model")
        nodes.configure(tmp_path)
        broken = nodes.run("cluster-serving-restart")
        assert broken.returncode == 1
        assert "broken.onnx" in broken.stderr
        assert len(nodes.applications()) == 1
        asking.goes_on()

        (model / "note.txt").write_text("a change")
        nodes.configure(model)
        canary = nodes.run("cluster-serving-cli", "update", "--canary", "50")
        assert canary.returncode == 0, canary.stdout + canary.stderr
        uploads = [line for line in canary.stdout.splitlines() if line.startswith("Uploading")]
        assert len(uploads) == 1
        assert "the model" in uploads[0]
        assert len(nodes.applications()) == 2
        asking.goes_on()
    finally:
        asking.stop()

    # Both applications end, and the folders of both.
    stopped = nodes.run("cluster-serving-stop", "digits")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr


@pytest.mark.parametrize(
    ("flink", "reason"),
    [
        ({"queue": "no-such-queue"}, "no-such-queue"),
        ({"options": {"taskmanager.memory.task.heap.size": "4096g"}}, "Maximum Memory"),
        ({"options": {"python.client.executable": "/no/such/python"}}, "/no/such/python"),
    ],
)
def test_a_job_that_yarn_or_its_main_program_refuses_says_why(nodes, model, flink, reason):
    nodes.configure(model, flink)
    started = nodes.run("cluster-serving-start")
    assert started.returncode == 1
    assert reason in started.stderr


def test_the_missing_variable_is_named(nodes, model, monkeypatch):
    nodes.configure(model)
    monkeypatch.setitem(nodes._environment, "HADOOP_CLASSPATH", "")
    assert "HADOOP_CLASSPATH is not set" in nodes.run("cluster-serving-start").stderr
