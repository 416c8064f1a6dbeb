"""A job on Kubernetes, deployed from this machine by Flink's native mode."""

import numpy as np
import pytest

from tests.support.fixtures.asking import Asking
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo
from tests.support.worlds import kubernetes
from tests.support.worlds.containers import SLOW

pytestmark = pytest.mark.timeout(3 * SLOW)


@pytest.fixture(scope="module")
def namespace(tmp_path_factory):
    kubernetes.require()
    made = kubernetes.Kubernetes(tmp_path_factory.mktemp("kubernetes"))
    yield made
    made.close()


@pytest.fixture
def pods(namespace):
    """The namespace, in which no job of the tests runs and nothing is left behind afterwards."""
    yield namespace
    if namespace.leftovers():
        namespace.run("cluster-serving-stop", "digits")
    assert namespace.leftovers() == []


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    model_zoo.save_openvino_digits(folder)
    return folder


def test_a_job_survives_its_pods_and_a_changed_model_alone_is_copied(pods, model):
    pods.configure(model, flink={"volume": "volume", "ship": "model"})
    started = pods.run("cluster-serving-start")
    assert started.returncode == 0, started.stdout + started.stderr
    assert started.stdout.count("Copying model-") == 1

    assert "RUNNING" in pods.run("cluster-serving-cli", "list").stdout
    assert "RUNNING" in pods.run("cluster-serving-cli", "status").stdout

    asking = Asking(pods.queue)
    asking.start()
    try:
        asking.goes_on()
        pods.replaced("taskmanager")
        asking.goes_on()
        pods.replaced("jobmanager")
        asking.goes_on()
    finally:
        asking.stop()

    # Nothing has changed; then only the model has.
    again = pods.run("cluster-serving-restart")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "Copying" not in again.stdout
    (model / "note.txt").write_text("a change")
    changed = pods.run("cluster-serving-restart")
    assert changed.returncode == 0, changed.stdout + changed.stderr
    assert changed.stdout.count("Copying model-") == 1
    assert "Copying environment" not in changed.stdout

    stopped = pods.run("cluster-serving-stop", "digits")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert pods.leftovers() == []


def test_a_small_model_needs_no_volume_and_only_the_jobmanager_sees_the_password(pods, model):
    pods.configure(model)
    started = pods.run("cluster-serving-start")
    assert started.returncode == 0, started.stdout + started.stderr
    asking = Asking(pods.queue)
    asking.start()
    asking.goes_on()
    asking.stop()

    def files(component):
        return pods.kubectl("exec", pods.pods(component)[-1], "--", "ls", "/etc/cluster-serving").split()

    assert "options.json" in files("jobmanager")
    assert files("taskmanager") == ["entry.sh"]
    assert pods.redis.password not in pods.kubectl("get", "pods,deployments,configmaps", "-o", "yaml")


def test_a_folder_of_models_travels_with_its_job(pods, tmp_path):
    shop = tmp_path / "shop"

    def put(name, factor):
        (shop / name).mkdir(parents=True, exist_ok=True)
        code = "class Handler:\n    inputs = outputs = {'x': 'float32'}\n    def predict(self, batch):\n"
        (shop / name / "handler.py").write_text(f"{code}        return {{'x': batch['x'] * {factor}}}\n")

    def ask(name):
        with pods.queue(name) as queue:
            return float(queue.predict({"x": np.float32(1)}, timeout=SLOW))

    put("double", 2)
    model_zoo.save_openvino_digits(shop / "net")
    (shop / "broken").mkdir()
    (shop / "broken" / "net.xml").write_text("<net/>")
    (shop / "broken" / "net.bin").touch()
    pods.configure(shop, flink={"volume": "volume", "ship": "model"})
    started = pods.run("cluster-serving-start")
    assert started.returncode == 0, started.stdout + started.stderr
    assert "2 of 3: double, net" in started.stdout
    told = f"the model broken is not served: OpenVINO cannot load {shop}/broken/net.xml"
    assert told in " ".join(started.stderr.split())
    assert ask("double") == 2
    with pods.queue("net") as queue:
        x, _ = model_zoo.digits_data()
        assert queue.predict({"x": x[0]}, timeout=SLOW) == pytest.approx(model_zoo.digits_mlp(x[:1])[0], abs=1e-4)

    put("double", 20)
    put("triple", 3)
    refused = pods.run("cluster-serving-cli", "update", "double")
    assert refused.returncode != 0 and "cluster-serving-restart brings them" in " ".join(refused.stderr.split())
    again = pods.run("cluster-serving-restart")
    assert again.returncode == 0, again.stdout + again.stderr
    assert [ask("double"), ask("triple")] == [20, 3]


@pytest.mark.parametrize(
    ("flink", "reason"),
    [
        ({"image": "localhost:9/no-such-image:1"}, "no-such-image"),
        ({"image": ""}, "flink.image"),
        ({"namespace": "no-such-namespace"}, "no-such-namespace"),
        ({"serviceAccount": "nobody"}, "nobody"),
        ({"serviceAccount": "default"}, "rolebinding"),
        ({"volume": "no-such-volume"}, "no-such-volume"),
        ({"ship": "environment"}, "flink.volume"),
        ({"options": {"kubernetes.taskmanager.cpu.amount": 10_000}}, "Insufficient cpu"),
        ({"options": {"execution.checkpointing.interval": "nonsense"}}, "nonsense"),
    ],
)
def test_what_keeps_a_job_from_starting_is_told(pods, model, flink, reason):
    pods.configure(model, flink=flink)
    done = pods.run("cluster-serving-start")
    assert done.returncode != 0
    assert reason in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_model_that_cannot_be_loaded(pods, model):
    (model / "digits.bin").write_bytes(b"")
    pods.configure(model)
    done = pods.run("cluster-serving-start")
    assert done.returncode != 0
    assert "OpenVINO cannot load" in " ".join(done.stderr.split())


def test_a_quota_that_leaves_no_pod_for_a_taskmanager(pods, model):
    pods.configure(model)
    pods.kubectl("create", "quota", "one", "--hard=pods=1")
    try:
        done = pods.run("cluster-serving-start")
    finally:
        pods.kubectl("delete", "quota", "one")
    assert done.returncode != 0
    assert "exceeded quota" in " ".join(done.stderr.split())


def test_a_session_cluster_gets_the_model_through_flink(pods, model):
    with pods.session("shared"):
        pods.configure(model, flink={"target": "kubernetes-session", "clusterId": "shared", "ship": "model"})

        def starts():
            started = pods.run("cluster-serving-start")
            # The JobManager's REST endpoint may not listen yet; anything else is a failure.
            assert started.returncode == 0 or "does not answer; if" in started.stderr, started.stdout + started.stderr
            return started.returncode == 0

        wait_until(starts, SLOW)
        asking = Asking(pods.queue)
        asking.start()
        asking.goes_on()
        asking.stop()
        assert "RUNNING" in pods.run("cluster-serving-cli", "list").stdout
        stopped = pods.run("cluster-serving-stop", "digits")
        assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    wait_until(lambda: not pods.leftovers(), SLOW)
