"""Loading and unloading of models by clients of the v2 repository API."""

import json
import threading
import time
from contextlib import contextmanager

import grpc
import httpx
import pytest
import redis
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from cluster_serving.frontend.proto import inference
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.launcher.rollout import control_requests
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.hosting.control import LOAD, MODEL_CONTROL
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport
from tests.support.fixtures.grpc_calls import caller


@pytest.fixture
def announced(db, job):
    """A controller that takes requests, by what it says of itself."""
    db.hset(JobKeys(job).controller, MODEL_CONTROL, "true")
    yield
    db.delete(JobKeys(job).controller, JobKeys(job).control)


@pytest.fixture
def controller(redis_server, db, job, announced):
    """Carries out requests as a controller of the launcher does, with a function in place of the change."""

    @contextmanager
    def controller(change):
        stopped = threading.Event()

        def run():
            with redis.Redis(port=redis_server.port, decode_responses=True) as client:
                while not stopped.wait(0.02):
                    if request := control_requests.take(JobStore(client, job)):
                        control_requests.finish(JobStore(client, job), request, change(request.action))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    return controller


@pytest.fixture
def change(db, job):
    """The change of a job: after `load` its slot is ready, after `unload` it is not."""

    def change(action):
        report = SlotReport("", "ready" if action == LOAD else "stopped", engine="Echo")
        db.hset(JobKeys(job).slots(), "0", report.to_json())
        if action != LOAD:
            with redis.Redis(**db.connection_pool.connection_kwargs | {"decode_responses": True}) as client:
                control_requests.note_unloaded(JobStore(client, job))

    return change


def test_tritons_client_unloads_and_loads_a_model(serve, vectors, controller, change, job):
    with controller(change), triton.InferenceServerClient(serve().url.removeprefix("http://")) as client:
        client.unload_model(job)
        (row,) = (row for row in client.get_model_repository_index() if row["name"] == job)
        assert (row["state"], row["reason"]) == ("UNAVAILABLE", "unloaded")
        assert not client.is_model_ready(job)
        refused = httpx.post(f"http://{client._parsed_url.netloc}/predict", json={"instances": [{"x": [1.0]}]})
        assert (refused.status_code, refused.json()["code"]) == (503, "MODEL_NOT_READY")
        assert f"/v2/repository/models/{job}/load loads it again" in refused.json()["error"]
        client.load_model(job)
        assert [row["state"] for row in client.get_model_repository_index() if row["name"] == job] == ["READY"]
        with pytest.raises(InferenceServerException, match="parameters config, file:model.xml, which") as raised:
            client.load_model(job, config="{}", files={"file:model.xml": b""})
        assert raised.value.status() == "400"


def test_a_change_that_fails_answers_with_the_cause(serve, vectors, controller, job, keys):
    file, key = keys
    front = serve(f"--apiKeysFile={file}")
    message = inference.RepositoryModelLoadRequest(model_name=job)
    message.parameters["config"].string_param = "{}"
    with controller(lambda action: ModelError("no such file")), grpc.insecure_channel(front.grpc) as channel:
        path = f"{front.url}/v2/repository/models/{job}/unload"
        assert httpx.post(path).status_code == 401
        answer = httpx.post(path, headers={"x-api-key": key})
        assert (answer.status_code, answer.json()["code"]) == (503, "MODEL_ERROR")
        assert answer.json()["error"] == f"failed to unload {job!r}: no such file"
        call = caller(channel, "inference.GRPCInferenceService")
        plain = inference.RepositoryModelLoadRequest(model_name=job)
        for request, status in ((message, "INVALID_ARGUMENT"), (plain, "FAILED_PRECONDITION")):
            with pytest.raises(grpc.RpcError) as raised:
                metadata = [("x-api-key", key)]
                call("RepositoryModelLoad", request, inference.RepositoryModelLoadResponse, metadata=metadata)
            assert raised.value.code().name == status


def test_without_a_controller_the_answer_names_the_key_that_starts_one(serve, vectors, job):
    front = serve()
    answer = httpx.post(f"{front.url}/v2/repository/models/{job}/load", json={})
    assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    assert "set modelControl: true in its config.yaml" in answer.json()["error"]
    assert httpx.post(f"{front.url}/v2/repository/models/another/load").status_code == 404
    assert httpx.get(f"{front.url}/v2/repository/models/{job}/load").status_code == 405


@pytest.mark.usefixtures("announced", "vectors")
def test_a_request_that_has_not_begun_is_withdrawn_with_its_client(serve, db, job):
    url = f"{serve().url}/v2/repository/models/{job}/load"
    answer = httpx.post(url, headers={"x-timeout-ms": "300"})
    assert (answer.status_code, answer.json()["code"]) == (504, "RESULT_TIMEOUT")
    assert "has not begun the load within 0.3 s; not done" in answer.json()["error"]
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url, timeout=0.5)
    deadline = time.monotonic() + 30
    while db.exists(JobKeys(job).control):
        assert time.monotonic() < deadline


@pytest.mark.usefixtures("announced")
def test_requests_are_carried_out_in_order_and_expired_ones_not_at_all(redis_server, job):
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        seconds, _ = client.time()
        for name, expires in (("late", seconds - 1), ("first", seconds + 60), ("second", seconds + 60)):
            client.rpush(JobKeys(job).control, json.dumps({"action": LOAD, "expires": expires, "id": name}))
        assert [control_requests.take(JobStore(client, job)).id for _ in range(2)] == ["first", "second"]
        assert control_requests.take(JobStore(client, job)) is None
