"""A job that is stopped and started again: front ends know it all the time, and what they are asked waits."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import redis

from cluster_serving.connectors.options import RedisOptions
from cluster_serving.connectors.slot.reporting import SlotReporter
from cluster_serving.frontend import arguments
from cluster_serving.frontend.models import dispatch
from cluster_serving.frontend.proto import inference, original
from cluster_serving.launcher.jobs.lock import locked
from cluster_serving.launcher.jobs.store import JobStore
from cluster_serving.protocol.errors import ModelError
from cluster_serving.protocol.keys import JOBS_KEY, JobKeys
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from tests.support.fixtures.echo import Consumer
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.grpc_calls import caller
from tests.support.fixtures.redis_server import RedisServer
from tests.support.fixtures.waiting import wait_until


@pytest.fixture
def launcher(redis_server):
    """A client of Redis as the commands have it."""
    with redis.Redis(port=redis_server.port, decode_responses=True) as client:
        yield client


@pytest.fixture
def reporter(db, job):
    """The reporter of the only slot of a start of the job."""
    made = []

    def reporter(submission):
        made.append(SlotReporter(db, RedisOptions("", job), submission, 0))
        made[-1].loading()
        return made[-1]

    yield reporter
    for one in made:
        one.close()
    db.srem(JOBS_KEY, job)
    db.delete(JobKeys(job).slots(), JobKeys(job).limits)


def state_of(url, job):
    (model,) = httpx.get(f"{url}/models/{job}").json()
    return model["state"]


def test_requests_of_all_apis_wait_while_their_job_is_restarted(
    serve, report, reporter, launcher, redis_server, db, job
):
    report(("x", "float64", (None, 2)), submission="first")
    # Not told any names: it finds the jobs in Redis.
    front = serve()
    url = front.url
    requests = {
        f"{url}/predict": {"instances": [{"x": [1, 2]}]},
        f"{url}/models/{job}/versions/1/predict": {"instances": [{"x": [1, 2]}]},
        f"{url}/v2/models/{job}/infer": {
            "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP64", "data": [1, 2]}]
        },
    }

    def assert_they_wait():
        with ThreadPoolExecutor() as pool:
            asked = [pool.submit(httpx.post, address, json=body, timeout=60) for address, body in requests.items()]
            wait_until(lambda: db.xlen(job) == len(requests) or any(one.done() for one in asked))
            with Consumer(redis_server.url, job):
                assert [one.result().status_code for one in asked] == [200] * 3

    assert state_of(url, job) == "ready"
    with locked(JobStore(launcher, job)):
        JobStore(launcher, job).note_stopped("first")
        wait_until(lambda: state_of(url, job) == "stopped")
        assert_they_wait()
    hurried = {"json": {"instances": [{"x": [1, 2]}]}, "headers": {"x-timeout-ms": "100"}}
    wait_until(lambda: httpx.post(f"{url}/predict", **hurried).status_code == 503)
    JobStore(launcher, job).announce("second", 2)
    wait_until(lambda: state_of(url, job) == "loading")
    assert_they_wait()
    slot = reporter("second")
    assert_they_wait()
    metadata = httpx.get(f"{url}/v2/models/{job}").json()
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP64", "shape": [-1, 2]}]
    slot.ready(SlotReport("", "", "Echo"))
    wait_until(lambda: state_of(url, job) == "ready")


@pytest.mark.parametrize("how", ["stopped", "silent"])
def test_all_apis_say_at_once_that_a_job_does_not_run(serve, report, job, how):
    import grpc

    changes = {"state": "stopped"} if how == "stopped" else {"attempt": "gone"}
    report(("x", "str", (None,)), **changes)
    front = serve()
    reason = f"model {job!r} is not served: " + ("its job is stopped" if how == "stopped" else "none of its slots")
    instances = {"instances": [{"x": "text"}]}
    requests = {
        "predict": instances,
        f"models/{job}/versions/1/predict": instances,
        f"v1/models/{job}:predict": instances,
        f"v2/models/{job}/infer": {"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["text"]}]},
        "v1/embeddings": {"model": job, "input": "text"},
        "v1/completions": {"model": job, "prompt": "text"},
    }
    for path, body in requests.items():
        refused = httpx.post(f"{front.url}/{path}", json=body)
        error = refused.json()["error"]
        assert (refused.status_code, reason in str(error)) == (503, True), (path, refused.text)
        assert "retry-after" in refused.headers
    assert httpx.post(f"{front.url}/v1/requests", json=instances).status_code == 202
    with grpc.insecure_channel(front.grpc) as channel:
        message = original.PredictReq(modelName=job, input='{"instances": [{"x": "text"}]}')
        with pytest.raises(grpc.RpcError, match=reason) as refused:
            caller(channel, "grpc.FrontEndGRPCService")("Predict", message, original.PredictReply)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        message = inference.ModelInferRequest(model_name=job)
        message.inputs.add(name="x", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"text")
        with pytest.raises(grpc.RpcError, match=reason):
            caller(channel, "inference.GRPCInferenceService")("ModelInfer", message, inference.ModelInferResponse)


def test_a_start_replaces_all_reports_of_earlier_ones(launcher, report, db, job):
    report(("x", "float64", (None, 2)), submission="first")
    key = JobKeys(job).slots()
    db.hset(key, "7", SlotReport("zeroth", "failed", code="MODEL_ERROR", error="gone", index=7).to_json())
    JobStore(launcher, job).announce("second", 2)
    reports = [SlotReport.from_json(text) for text in launcher.hvals(key)]
    assert {(one.submission, one.state, one.engine, one.error) for one in reports} == {
        ("second", "loading", "Echo", None)
    }
    assert sorted(one.index for one in reports) == [0, 1]


def test_a_model_that_no_slot_can_load_is_refused_at_once_with_the_cause(serve, reporter, keys, job):
    reporter("first").failed(ModelError.code, "no such file: /model/net.xml")
    file, key = keys
    body = {"instances": [{"x": [1, 2]}]}
    v2 = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP64", "data": [1, 2]}]}
    for options, headers, known in (
        ([], {}, True),
        (["--interface=0.0.0.0"], {}, False),
        (["--interface=0.0.0.0", f"--apiKeysFile={file}"], {"x-api-key": key}, True),
    ):
        front = serve(*options)
        url = front.url.replace("0.0.0.0", "127.0.0.1")
        paths = (
            ("predict", body),
            (f"models/{job}/predict", body),
            ("v1/requests", body),
            (f"v2/models/{job}/infer", v2),
        )
        for path, content in paths:
            refused = httpx.post(f"{url}/{path}", json=content, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (503, "MODEL_ERROR")
            assert job in refused.json()["error"]
            assert ("no such file" in refused.json()["error"]) == known
        front.stop()


def test_the_grpc_service_of_the_original_refuses_it_too(serve, reporter, job):
    import grpc

    reporter("first").failed(ModelError.code, "no such file")
    with grpc.insecure_channel(serve().grpc) as channel, pytest.raises(grpc.RpcError, match="no such file") as refused:
        message = original.PredictReq(modelName=job, input='{"instances": [{"x": [1, 2]}]}')
        caller(channel, "grpc.FrontEndGRPCService")("Predict", message, original.PredictReply)
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_a_redis_that_was_emptied_makes_no_model_unknown_to_a_front_end(serve, report, db, job):
    report(("x", "float64", (None, 2)))
    url = serve().url
    assert state_of(url, job) == "ready"
    db.delete(JOBS_KEY, JobKeys(job).slots())
    before = db.info("commandstats")["cmdstat_smembers"]["calls"]

    def read_again():
        httpx.get(f"{url}/models")
        return db.info("commandstats")["cmdstat_smembers"]["calls"] > before

    wait_until(read_again)
    assert state_of(url, job) == "ready"


@pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
def test_every_call_waits_for_a_redis_that_is_started_again(tmp_path, job, monkeypatch):
    """Longer than the attempts of redis-py, which last half a second."""
    monkeypatch.setattr(dispatch, "RETRY_BUDGET", 15.0)
    server = RedisServer(tmp_path, "--appendfsync", "always")
    report = SlotReport("first", "ready", "Echo", inputs=(TensorSpec("x", "float32", (None, None)),))
    with redis.Redis(port=server.port) as db:
        db.sadd(JOBS_KEY, job)
        db.hset(JobKeys(job).slots(), "0", report.to_json())
    words = [f"--redisUrl={server.url}", "--port=0", "--grpcPort=0", "--drainSeconds=0"]
    front = Running(arguments.read(words, {}))
    try:
        with Consumer(server.url, job), httpx.Client(base_url=front.url, timeout=30) as client:
            body = {"instances": [{"x": [1, 2]}]}
            tickets = [client.post("/v1/requests", json=body).json()["id"] for _ in range(2)]
            assert client.post(f"/models/{job}/predict", json=body).status_code == 200
            server.kill()
            calls = [
                ("POST", "/v1/requests", 202, body),
                ("GET", f"/v1/requests/{tickets[0]}", 200, None),
                ("DELETE", f"/v1/requests/{tickets[1]}", 204, None),
                ("GET", f"/v2/models/{job}/stats", 200, None),
                ("POST", f"/models/{job}/predict", 200, body),
            ]
            with ThreadPoolExecutor() as pool:
                asked = [pool.submit(client.request, method, path, json=json) for method, path, _, json in calls]
                time.sleep(1.2)
                assert not any(one.done() for one in asked)
                server.start()
                assert [one.result().status_code for one in asked] == [status for _, _, status, _ in calls]
    finally:
        front.stop()
        server.stop()
