"""Several models in one job on a real Redis Cluster: all their keys are in the hash slot of the job."""

import shutil
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from redis.crc import key_slot

from cluster_serving.client import InferenceFailed, InputQueue, ModelError, OutputQueue, PoisonRequest
from cluster_serving.frontend import arguments
from cluster_serving.launcher.config.model import Config
from cluster_serving.launcher.errors import LaunchError
from cluster_serving.launcher.jobs import hosted
from cluster_serving.launcher.rollout import model_change
from cluster_serving.launcher.services import redis_server
from cluster_serving.protocol.keys import JobKeys
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.handled import NO_NEGATIVES, write
from tests.support.fixtures.redis_topologies import Cluster, servers
from tests.support.fixtures.running_slot import RunningJob
from tests.support.fixtures.waiting import wait_until

ADDS = """
    class Handler:
        inputs = {{"x": "float32"}}
        outputs = {{"y": "float32"}}

        def predict(self, batch):
            return {{"y": batch["x"] + {number}}}
    """


def put(root, name, code):
    (root / name).mkdir(exist_ok=True)
    write(root / name, code)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with servers() as running:
        yield Cluster(tmp_path_factory.mktemp("cluster"), running)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    put(folder, "{shop}one", ADDS.format(number=1))
    put(folder, "{shop}two", ADDS.format(number=2))
    put(folder, "{shop}picky", NO_NEGATIVES)
    return folder


@pytest.fixture(scope="module")
def job(nodes, root, tmp_path_factory):
    """The job `{shop}`, of two slots."""
    settings = {"redisUrl": nodes.url, "jobName": "{shop}", "modelPath": root, "modelParallelism": 2}
    nobody = SimpleNamespace(port=0)
    job = RunningJob(nobody, tmp_path_factory.mktemp("config"), claimIdleTime=1, maxDeliveries=1, **settings)
    job.start()
    yield job
    job.stop()


@pytest.fixture
def ask(nodes, job):
    """Asks a model by its name."""

    def predict(name, number=1.0):
        with InputQueue(url=nodes.url, name=name) as queue:
            return float(queue.predict({"x": np.float32(number)}, timeout=60)["y"])

    return predict


@pytest.fixture(scope="module")
def front(nodes, job):
    """A front end that is told the name of the job alone."""
    running = Running(arguments.read([f"--redisUrl={nodes.url}", "--models={shop}", "--port=0", "--grpcPort=0"], {}))
    with httpx.Client(base_url=running.url, timeout=60) as client:
        yield client
    running.stop()


def test_the_front_end_finds_the_models_by_the_name_of_the_job(front):
    assert [each["modelName"] for each in front.get("/models").json()] == ["{shop}one", "{shop}picky", "{shop}two"]
    assert front.get("/health/ready").json() == {"ready": True}
    body = {"instances": [{"x": 1}, {"x": 2}]}
    for name, values in {"{shop}one": [2, 3], "{shop}two": [3, 4]}.items():
        answer = {"predictions": [{"value": value} for value in values]}
        assert front.post(f"/models/{name}/predict", json=body).json() == answer
        submitted = front.post("/v1/requests", json=body | {"model": name})
        later = front.get(submitted.headers["location"], params={"wait": 30}).json()
        assert later["predictions"] == answer["predictions"]
    unknown = front.post("/models/{shop}three/predict", json=body)
    assert unknown.status_code == 404 and "there are: {shop}one" in unknown.json()["error"]


def test_the_address_of_one_node_is_refused_with_that_of_the_cluster(nodes):
    for node in nodes.nodes:
        config = Config(redisUrl=f"localhost:{node.port}", jobName="{shop}", modelPath="models")
        with pytest.raises(LaunchError, match=rf"set redisUrl: redis\+cluster://localhost:{node.port}"):
            redis_server.ensure(config)


def test_models_change_and_what_redis_loses_is_there_again(job, ask, root, nodes):
    put(root, "{shop}two", ADDS.format(number=20))
    put(root, "{shop}new", ADDS.format(number=5))
    with job.place() as place:
        for name in ("{shop}two", "{shop}new"):
            model_change.load_in(place, name)
    assert [ask(name) for name in ("{shop}one", "{shop}two", "{shop}new")] == [2, 21, 6]
    with pytest.raises(InferenceFailed, match="-1 is negative"):
        ask("{shop}picky", -1.0)
    owner = nodes.owner(key_slot(b"{shop}"))
    owner.client.flushall()
    assert [ask(name) for name in ("{shop}one", "{shop}two", "{shop}new")] == [2, 21, 6]
    wait_until(lambda: owner.client.hlen(JobKeys("{shop}").models) == 4)
    with job.place() as place:
        states = {one.name: one.state for one in hosted.read(place.store)}
    assert states == dict.fromkeys(["{shop}new", "{shop}one", "{shop}picky", "{shop}two"], "ready")
    shutil.rmtree(root / "{shop}new")
    with job.place() as place:
        model_change.remove_in(place, "{shop}new")
    with pytest.raises(ModelError, match="model '{shop}new' was removed from the job {shop}"):
        ask("{shop}new")


def test_a_request_that_dead_slots_have_read_too_often_is_a_dead_letter_of_its_model(job, nodes):
    job.stop_slots()
    with InputQueue(url=nodes.url, name="{shop}one") as queue, OutputQueue(url=nodes.url, name="{shop}one") as results:
        queue.enqueue("left", x=np.float32(4))
        queue.db.xreadgroup("serving", JobKeys("{shop}").consumer(0, 1), {"{shop}one": ">"})
        job.run_slots_again()
        with pytest.raises(PoisonRequest):
            results.query("left", timeout=60)
        assert queue.db.xlen(JobKeys("{shop}one").dead_letters) == 1
