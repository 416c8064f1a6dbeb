"""A front end of jobs in a real Redis Cluster, each on a node of its own."""

from contextlib import ExitStack

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from redis.crc import key_slot

from cluster_serving.connectors.slot.groups import create_group
from cluster_serving.frontend import arguments
from cluster_serving.frontend.context import FrontEnd
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.redis.connection import open_redis
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from cluster_serving.settings.errors import SettingsError
from tests.support.fixtures.echo import Consumer
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.redis_topologies import Cluster, eventually, servers
from tests.support.fixtures.waiting import wait_until

SPEC = TensorSpec("x", "float32", (None, None))
BODY = {"instances": [{"x": [1, 2]}, {"x": [3, 4]}]}
ANSWER = {"predictions": [{"value": [1.0, 2.0]}, {"value": [3.0, 4.0]}]}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with servers() as running:
        yield Cluster(tmp_path_factory.mktemp("cluster"), running)


@pytest.fixture
def jobs(nodes):
    """Names of jobs that echo, each on another node."""
    names = {nodes.owner(key_slot(name.encode())).port: name for name in (f"{{job-{n}}}" for n in range(50))}
    assert len(names) == 3
    with ExitStack() as stack:
        for name in names.values():
            with open_redis(nodes.url, name) as client:
                create_group(client, name)
                client.hset(JobKeys(name).slots(), "0", SlotReport("", "ready", "Echo", (SPEC,), (SPEC,)).to_json())
            stack.enter_context(Consumer(nodes.url, name))
        yield list(names.values())


@pytest.fixture
def front(nodes, jobs):
    words = [f"--redisUrl={nodes.url}", f"--models={','.join(jobs)}", "--port=0", "--grpcPort=0"]
    running = Running(arguments.read(words, {}))
    yield running
    running.stop()


@pytest.fixture
def ask(front):
    with httpx.Client(base_url=front.url, timeout=60) as client:
        yield client


def test_every_job_is_served_from_its_node(front, ask, jobs):
    assert [row["modelName"] for row in ask.get("/models").json()] == sorted(jobs)
    assert ask.get("/health/ready").json() == {"ready": True}
    for job in jobs:
        assert ask.post(f"/models/{job}/predict", json=BODY).json() == ANSWER
        with triton.InferenceServerClient(front.url.removeprefix("http://"), network_timeout=60) as client:
            tensor = triton.InferInput("x", [1, 2], "FP32")
            tensor.set_data_from_numpy(np.ones((1, 2), "f4"))
            assert client.infer(job, [tensor]).as_numpy("x").tolist() == [[1, 1]]
    assert {row["modelName"] for row in ask.get("/ui/data").json()["models"]} == set(jobs)
    text = ask.get("/metrics", headers={"accept": "text/plain"}).text
    assert text.count("cluster_serving_queue_length{") == len(jobs)


def test_results_can_be_asked_for_later(ask, jobs):
    for job in jobs:
        submitted = ask.post("/v1/requests", json=BODY | {"model": job})
        assert submitted.status_code == 202
        place = submitted.headers["location"]
        assert ask.get(place, params={"wait": 30}).json()["predictions"] == ANSWER["predictions"]
        assert ask.get(f"{place}/events").text.count("event: prediction") == 2
        assert ask.delete(place).status_code == 204
    elsewhere = place.replace("job-", "no-job-")
    assert ask.get(elsewhere).status_code == 404


def test_the_secret_of_encrypted_models_reaches_every_job(ask, nodes, jobs):
    assert ask.post("/model-secure", content="secret=s&salt=t").status_code == 200
    for job in jobs:
        with open_redis(nodes.url, job) as client:
            assert client.hgetall(JobKeys(job).secret) == {b"secret": b"s", b"salt": b"t"}


def test_a_job_whose_slot_moves_is_followed(nodes):
    """Another job than those of the other tests, as its keys do not move with their slot."""
    job = "{moves}"
    words = [f"--redisUrl={nodes.url}", f"--models={job}", "--port=0", "--grpcPort=0"]
    running = Running(arguments.read(words, {}))
    slot = key_slot(job.encode())
    try:
        with open_redis(nodes.url, job) as client, Consumer(nodes.url, job):
            create_group(client, job)
            assert httpx.post(f"{running.url}/predict", json=BODY, timeout=60).json() == ANSWER
        owner = nodes.owner(slot)
        owner.client.delete(*owner.client.keys("*{moves}*"))
        nodes.move(slot, next(node for node in nodes.nodes if node is not owner))
        with open_redis(nodes.url, job) as client, Consumer(nodes.url, job):
            eventually(lambda: create_group(client, job), (Exception,))

            def answer():
                response = httpx.post(f"{running.url}/predict", json=BODY, timeout=60)
                return response.json() == ANSWER

            wait_until(answer)
    finally:
        running.stop()


def test_the_jobs_of_a_cluster_have_to_be_named_and_to_have_braces():
    with pytest.raises(SettingsError, match="name them in models"):
        arguments.read(["--redisUrl=redis+cluster://a"], {})
    with pytest.raises(ValueError, match="needs braces, such as '{plain}'"):
        FrontEnd(arguments.read(["--redisUrl=redis+cluster://a", "--models=plain"], {}))
