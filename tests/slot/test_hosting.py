"""Several models in one job: each answers under its own name, and harms no other one."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import grpc
import httpx
import numpy as np
import pytest
from grpc_health.v1 import health, health_pb2

from cluster_serving.client import (
    DeadlineExceeded,
    InferenceFailed,
    InputQueue,
    InvalidInput,
    ModelError,
    OutputQueue,
    ServingError,
)
from cluster_serving.connectors.slot.groups import create_groups
from cluster_serving.frontend import arguments
from cluster_serving.frontend.proto import inference, original
from cluster_serving.protocol.keys import GROUP, JOBS_KEY, JobKeys
from tests.support.fixtures import sleeper
from tests.support.fixtures.front_end import Running
from tests.support.fixtures.generating import PARROT
from tests.support.fixtures.grpc_calls import caller, typed
from tests.support.fixtures.handled import NO_NEGATIVES, write
from tests.support.fixtures.running_slot import RunningJob
from tests.support.fixtures.sleeper import seconds
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import model_zoo, texts

FACTORS = {"double": 2, "half": 0.5, "triple": 3}
ROW = np.arange(4, dtype="f4")
ADDS_ONE = """
    class Handler:
        inputs = {"x": "float32"}
        outputs = {"y": "float32"}

        def predict(self, batch):
            return {"y": batch["x"] + 1}
    """

READS_JSON = """
    import json

    class Handler:
        inputs = {"text": "str"}
        outputs = {"y": "float32"}

        def predict(self, batch):
            return {"y": [json.loads(text) for text in batch["text"]]}
    """


def put(root, name, save, config=""):
    """Save a model in a subfolder of the repository, with a configuration of its own."""
    (root / name).mkdir()
    save(root / name)
    if config:
        (root / name / "config.yaml").write_text(config)


@pytest.fixture(scope="module")
def port(redis_server, tmp_path_factory):
    """Port of the Redis of the job `shop`, which serves a folder of models."""
    root = tmp_path_factory.mktemp("repository")
    for name, factor in FACTORS.items():
        put(root, name, lambda folder, factor=factor: model_zoo.save_openvino_product(folder, factor))
    put(root, "ranked", lambda folder: model_zoo.save_openvino_product(folder, 1), "postProcessing: topN(2)")
    put(root, "gathers", lambda folder: write(folder, ADDS_ONE), "greedyBatching: false\nbatchTimeout: 20")
    put(root, "picky", lambda folder: write(folder, NO_NEGATIVES))
    put(root, "spoilt", lambda folder: write(folder, ADDS_ONE))
    put(root, "chatty", lambda folder: write(folder, READS_JSON))
    put(root, "parrot", lambda folder: write(folder, PARROT))
    put(root, "slow", sleeper.write_to, "maxBatchSize: 1\nrequestDeadline: 60000")
    put(root, "reader", texts.save_reader, "pooling: mean")
    put(root, "broken", lambda folder: (folder / "model.onnx").write_bytes(b"no model"))
    put(root, "foreign", lambda folder: write(folder, ADDS_ONE), "redisUrl: localhost:1")
    (root / "notes").mkdir()
    settings = {"jobName": "shop", "modelPath": root, "maxBatchSize": 4, "claimIdleTime": 1}
    job = RunningJob(redis_server, tmp_path_factory.mktemp("config"), **settings)
    with InputQueue(port=redis_server.port, name="double") as early:
        # A request that an earlier run of the job has read, and not answered.
        create_groups(early.db, "double")
        early.enqueue("left", x=ROW)
        early.db.xreadgroup(GROUP, JobKeys("shop").consumer(0, 0), {"double": ">"})
    with InputQueue(port=redis_server.port, name="half") as early:
        # One that a job of this model alone has read, and not answered.
        create_groups(early.db, "half")
        early.enqueue("left", x=ROW)
        early.db.xreadgroup(GROUP, JobKeys("half").consumer(1, 0), {"half": ">"})
    job.start()
    yield redis_server.port
    job.stop()


@pytest.fixture(scope="module")
def front_end(port):
    """A front end of all jobs, as `cluster-serving-start --http` starts it."""
    options = [f"--redisUrl=redis://127.0.0.1:{port}", "--redisInputQueue=shop", "--port=0", "--grpcPort=0"]
    front_end = Running(arguments.read(options, {}))
    yield front_end
    front_end.stop()


@pytest.fixture(scope="module")
def front(front_end):
    """A client of the front end."""
    with httpx.Client(base_url=front_end.url, timeout=60) as client:
        yield client


@pytest.fixture
def ask(port):
    """Asks a model by its name."""

    def predict(name, timeout=60, **inputs):
        with InputQueue(port=port, name=name) as queue:
            return queue.predict(inputs, timeout=timeout)

    return predict


@pytest.mark.parametrize("name", ["double", "half"])
def test_what_an_earlier_run_left_is_answered(port, name):
    with OutputQueue(port=port, name=name) as results:
        np.testing.assert_array_equal(results.query("left", timeout=60), ROW * FACTORS[name])


def test_each_model_answers_under_its_name_with_its_own_keys(ask):
    for name, factor in FACTORS.items():
        np.testing.assert_array_equal(ask(name, x=ROW), ROW * factor)
    np.testing.assert_array_equal(ask("ranked", x=ROW), [[3, 3], [2, 2]])
    # Two handlers, both in a module of the name `handler`; one waits for its batch to fill.
    assert ask("gathers", x=np.float32(1)) == 2
    assert ask("picky", x=np.float32(1)) == 1
    [tokens] = texts.tokens("the cat sat")
    np.testing.assert_allclose(ask("reader", text="the cat sat")["embedding"], tokens.mean(axis=0), atol=1e-5)


def test_requests_of_many_clients_are_answered_by_the_model_that_they_name(port):
    def send(client):
        with InputQueue(port=port, name=(name := sorted(FACTORS)[client % len(FACTORS)])) as queue:
            sent = [{"x": ROW + client * 1000 + number} for number in range(200)]
            found = list(queue.predict_many(sent, in_flight=50, timeout=60))
        return [
            np.array_equal(y, record["x"] * np.float32(FACTORS[name])) for y, record in zip(found, sent, strict=True)
        ]

    with ThreadPoolExecutor(6) as pool:
        assert [sum(right) for right in pool.map(send, range(6))] == [200] * 6


def test_a_model_waits_for_one_batch_of_a_slow_one(port):
    with InputQueue(port=port, name="slow") as slow, OutputQueue(port=port, name="slow") as results:
        first = int(slow.predict({"x": seconds(0)}, timeout=60)[0])
        for number in range(6):
            slow.enqueue(f"s{number}", x=seconds(0.3))
        with InputQueue(port=port, name="double") as fast:
            for _ in range(2):
                np.testing.assert_array_equal(fast.predict({"x": ROW}, timeout=60), ROW * 2)
        assert results.query("s5") is None
        assert results.query("s5", timeout=60) == first + 6


def test_a_late_request_of_one_model_is_refused(port):
    with InputQueue(port=port, name="slow") as slow, OutputQueue(port=port, name="slow") as results:
        slow.enqueue("now", x=seconds(0.5))
        slow.enqueue("late", x=seconds(0), deadline=0.1)
        with pytest.raises(DeadlineExceeded):
            results.query("late", timeout=60)
        assert results.query("now", timeout=60) is not None


def test_a_failing_record_is_a_dead_letter_of_its_model(ask, db):
    with pytest.raises(InferenceFailed, match="-1 is negative"):
        ask("picky", x=np.float32(-1))
    assert db.xlen(JobKeys("picky").dead_letters) == 1
    assert not db.exists(JobKeys("shop").dead_letters, JobKeys("double").dead_letters)


def test_requests_that_nothing_can_compute_are_answered_with_the_reason(ask, front):
    with pytest.raises(ModelError, match="model 'broken' is not served: .*broken/model.onnx is not an ONNX model"):
        ask("broken", x=ROW)
    with pytest.raises(ModelError, match="foreign/config.yaml, line 1: redisUrl belongs to the job"):
        ask("foreign", x=ROW)
    with pytest.raises(InvalidInput, match="the job shop serves several models; name one of them: chatty, double, "):
        ask("shop", x=ROW)
    with pytest.raises(InvalidInput, match="the model expects x: float32"):
        ask("double", x=np.zeros(3, "f4"))
    refused = front.post("/models/broken/predict", json={"instances": [{"x": [0, 0]}]})
    assert refused.status_code == 503 and "is not an ONNX model" in refused.json()["error"]
    for path in ("/models/shop/predict", "/predict"):
        unnamed = front.post(path, json={"instances": [{"x": [0]}]})
        assert unnamed.status_code == 404
        assert "there is no model 'shop', but a job that serves several; there are: broken" in unnamed.json()["error"]


def test_http_asks_each_model_by_its_name(front):
    x = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": ROW.tolist()}
    for name, factor in FACTORS.items():
        original = front.post(f"/models/{name}/predict", json={"instances": [{"x": ROW.tolist()}]}).json()
        assert original["predictions"][0]["value"] == (ROW * factor).tolist()
        answer = front.post(f"/v2/models/{name}/infer", json={"inputs": [x]}).json()
        assert answer["outputs"][0]["data"] == (ROW * factor).tolist()
        row = front.post(f"/v1/models/{name}:predict", json={"instances": [ROW.tolist()]}).json()
        assert row["predictions"] == [(ROW * factor).tolist()]


def copy_of(request, name):
    made = type(request)()
    made.CopyFrom(request)
    made.model_name = name
    return made


def test_every_protocol_asks_a_model_by_its_name(front, front_end):
    with grpc.insecure_channel(front_end.grpc) as channel:
        call = caller(channel, "inference.GRPCInferenceService")
        request = typed("FP32", "fp32_contents", ROW.tolist(), (1, 4))
        request.model_name = "triple"
        answer = call("ModelInfer", request, inference.ModelInferResponse)
        assert list(answer.outputs[0].contents.fp32_contents) == (ROW * 3).tolist()
        request.model_name = "shop"
        with pytest.raises(grpc.RpcError, match="there is no model 'shop', but a job that serves several"):
            call("ModelInfer", request, inference.ModelInferResponse)
        named = [copy_of(request, name) for name in ("half", "broken", "shop", "double")]
        path, reply = "/inference.GRPCInferenceService/ModelStreamInfer", inference.ModelStreamInferResponse
        stream = channel.stream_stream(path, type(request).SerializeToString, reply.FromString)
        half, broken, unnamed, double = stream(iter(named), timeout=60)
        assert list(half.infer_response.outputs[0].contents.fp32_contents) == (ROW / 2).tolist()
        assert list(double.infer_response.outputs[0].contents.fp32_contents) == (ROW * 2).tolist()
        assert "is not an ONNX model" in broken.error_message and "no model 'shop'" in unnamed.error_message
        predict = partial(caller(channel, "grpc.FrontEndGRPCService"), "Predict", reply=original.PredictReply)
        asked = {"modelVersion": "1", "input": json.dumps({"instances": [{"x": ROW.tolist()}]})}
        [text] = json.loads(predict(original.PredictReq(modelName="triple", **asked)).response)
        assert json.loads(json.loads(text)["value"])["data"] == (ROW * 3).tolist()
        for name, reason in (("shop", "no model 'shop', but a job"), ("broken", "is not an ONNX model")):
            with pytest.raises(grpc.RpcError, match=reason):
                predict(original.PredictReq(modelName=name, **asked))
        check = partial(caller(channel, health.SERVICE_NAME), "Check", reply=health_pb2.HealthCheckResponse)
        states = [check(health_pb2.HealthCheckRequest(service=name)).status for name in ("double", "broken")]
        assert states == [health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]
    listed = [each["id"] for each in front.get("/v1/models").json()["data"]]
    assert {"double", "parrot", "reader"} <= set(listed) and "shop" not in listed
    prompt = {"model": "parrot", "prompt": "one two", "max_tokens": 5}
    assert front.post("/v1/completions", json=prompt).json()["choices"][0]["text"] == "one two "
    events = front.post("/v1/completions", json=prompt | {"stream": True}).text
    assert [json.loads(line[6:])["choices"][0]["text"] for line in events.split("\n\n")[:2]] == ["one ", "two "]
    embedded = front.post("/v1/embeddings", json={"model": "reader", "input": "the cat sat"}).json()
    np.testing.assert_allclose(embedded["data"][0]["embedding"], texts.tokens("the cat sat")[0].mean(axis=0), atol=1e-5)
    queued = front.post("/v1/requests", json={"model": "half", "instances": [{"x": ROW.tolist()}]}).json()["id"]
    found = front.get(f"/v1/requests/{queued}", params={"wait": 30}).json()
    assert found["predictions"][0]["value"] == (ROW / 2).tolist()
    assert "/models/double/predict" in front.get("/models/double/openapi.json").json()["paths"]
    spoken = {"model": "parrot", "messages": [{"role": "user", "content": "one two"}]}
    assert front.post("/v1/chat/completions", json=spoken).json()["choices"][0]["message"]["content"] == "one two "
    instances = {"instances": [{"x": ROW.tolist()}]}
    text = front.post("/zoo-0.9/models/double/versions/1/predict", json=instances).json()["predictions"][0]
    assert text == "{value=data=[0.0,2.0,4.0,6.0],shape=[4];}"


def test_readiness_is_that_of_each_model_and_a_broken_one_does_not_count(front, db):
    assert front.get("/health/ready").status_code == 200
    ready = {name: front.get(f"/v2/models/{name}/ready").status_code for name in ("double", "broken", "shop")}
    assert ready == {"double": 200, "broken": 503, "shop": 404}
    index = {each["name"]: each for each in front.post("/v2/repository/index").json()}
    assert index["double"]["state"] == "READY"
    assert index["broken"]["state"] == "UNAVAILABLE" and "is not an ONNX model" in index["broken"]["reason"]
    assert {"shop", "notes"}.isdisjoint(index)
    # The slots of the job are one set: so are the probes.
    asked = {name: int(db.get(JobKeys(name).answered) or 0) for name in ("half", "triple", "ranked")}
    assert front.get("/health/ready").status_code == 200
    assert {name: int(db.get(JobKeys(name).answered) or 0) for name in asked} == asked


def test_models_are_not_loaded_and_unloaded_unless_their_job_allows_it(front):
    for name, action in (("double", "load"), ("double", "unload"), ("new", "load")):
        refused = front.post(f"/v2/repository/models/{name}/{action}")
        assert refused.status_code == 403
        assert f"the job shop does not {action} models at a client's request" in refused.json()["error"]
    assert front.post("/v2/repository/models/new/unload").status_code == 404


def test_what_redis_has_lost_is_written_again(ask, db):
    keys = [*JobKeys("double").streams, JobKeys("double").limits, JobKeys("shop").models]
    db.delete(*keys)
    wait_until(lambda: db.exists(JobKeys("shop").models), 30)
    np.testing.assert_array_equal(ask("double", x=ROW), ROW * 2)
    assert db.sismember(JOBS_KEY, "shop") and not db.sismember(JOBS_KEY, "double")


def test_metrics_have_series_of_each_model_and_those_of_the_process_under_the_name_of_the_job(ask, front):
    np.testing.assert_array_equal(ask("double", x=ROW), ROW * 2)

    def values(name):
        text = front.get("/metrics", headers={"Accept": "text/plain"}).text
        lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith(f"cluster_serving_{name}{{")]
        return {labels.partition('serving_job="')[2].partition('"')[0]: float(value) for labels, _, value in lines}

    wait_until(lambda: values("process_memory_bytes").get("shop"), 30)
    assert set(values("process_memory_bytes")) == {"shop"}
    wait_until(lambda: values("records_answered_total").get("double"), 30)
    assert {"double", "broken", "shop"} <= set(values("queue_length"))
    assert [thread.name for thread in threading.enumerate()].count("stats") == 1
    slots = {each["modelName"]: each["slotReports"] for each in front.get("/ui/data").json()["models"]}
    assert slots["double"][0]["memory"] == slots["half"][0]["memory"] > 0 < slots["double"][0]["cpuUs"]
    told = [each["what"] for each in front.get("/ui/models/double").json()["events"]]
    assert any(what.startswith("slot 0 of generation 1 does not serve the model broken") for what in told)


def test_probes_do_not_ask_again_a_model_that_fails_on_zeros(front, db):
    """In the order of their names, the first model is one that fails on an empty text."""

    def asked():
        return int(db.get(JobKeys("double").answered) or 0)

    assert front.get("/health/ready").status_code == 200
    assert (failed := db.xlen(JobKeys("chatty").dead_letters))
    before = asked()
    wait_until(lambda: asked() > before, 30)
    assert db.xlen(JobKeys("chatty").dead_letters) == failed


def test_a_job_of_which_no_model_can_be_loaded_tells_the_reason_of_each(redis_server, tmp_path):
    (tmp_path / "models").mkdir()
    put(tmp_path / "models", "ill", lambda folder: (folder / "model.onnx").write_bytes(b"no model"))
    put(tmp_path / "models", "wrong", lambda folder: write(folder, ADDS_ONE), "redisUrl: localhost:1")
    job = RunningJob(redis_server, tmp_path, jobName="none", modelPath=tmp_path / "models")
    reasons = "none of the models .* ill: .*ill/model.onnx is not an ONNX model.*; wrong: .*redisUrl belongs to the job"
    with pytest.raises(ModelError, match=reasons):
        job.start()


@pytest.mark.parametrize("suffix", ["", ":high"])
def test_a_key_of_another_program_keeps_one_model_from_its_requests_alone(port, ask, db, suffix):
    assert ask("spoilt", x=1) == 2
    db.delete(f"spoilt{suffix}")
    db.set(f"spoilt{suffix}", "another program's")
    try:
        for number in range(20):
            assert ask("double", timeout=5, x=ROW + number).tolist() == (2 * (ROW + number)).tolist()
        with pytest.raises(ServingError, match="WRONGTYPE.*doctor"):
            ask("spoilt", timeout=5, x=1)
    finally:
        db.delete(f"spoilt{suffix}")
    assert ask("spoilt", x=1) == 2
