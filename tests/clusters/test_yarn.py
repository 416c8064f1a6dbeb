"""A job on a YARN cluster, deployed by a user who has no rights on the nodes."""

import pytest

from tests.support import model_zoo, yarn
from tests.support.asking import Asking
from tests.support.waiting import wait_until

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


def test_a_job_survives_its_containers_and_a_changed_model_alone_is_uploaded(nodes, model):
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
    finally:
        asking.stop()

    (model / "note.txt").write_text("a change")
    restarted = nodes.run("cluster-serving-restart")
    assert restarted.returncode == 0, restarted.stdout + restarted.stderr
    uploads = [line for line in restarted.stdout.splitlines() if line.startswith("Uploading")]
    assert len(uploads) == 1
    assert "the model" in uploads[0]

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


def test_a_model_that_cannot_be_loaded_is_named(nodes, tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    nodes.configure(tmp_path)
    started = nodes.run("cluster-serving-start")
    assert started.returncode == 1
    assert "broken.onnx" in started.stderr


def test_the_missing_variable_is_named(nodes, model, monkeypatch):
    nodes.configure(model)
    monkeypatch.setitem(nodes._environment, "HADOOP_CLASSPATH", "")
    assert "HADOOP_CLASSPATH is not set" in nodes.run("cluster-serving-start").stderr
