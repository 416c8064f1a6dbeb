"""Traces and logs: what tools get to see of a request on its way through the processes."""

import json
import os
import subprocess
import sys

import grpc
import httpx
import pytest

from cluster_serving.client import InferenceFailed, InputQueue
from cluster_serving.frontend.proto import inference
from tests.support.fixtures.cluster import Cluster
from tests.support.fixtures.collector import Collector
from tests.support.fixtures.grpc_calls import raw
from tests.support.fixtures.handled import write
from tests.support.fixtures.redis_server import free_port
from tests.support.fixtures.waiting import wait_until

HANDLER = """
    class Handler:
        inputs = {"x": "float32"}
        outputs = {"y": "float32"}

        def predict(self, batch):
            return [{"y": x} if x >= 0 else ValueError("no number") for x in batch["x"]]
    """

STEPS = {name: {} for name in ("preprocess", "inference", "postprocess", "write")}

PARENT = "00f067aa0ba902b7"


@pytest.fixture(scope="module")
def collector():
    collector = Collector()
    yield collector
    collector.stop()


@pytest.fixture(scope="module")
def cluster(collector, tmp_path_factory):
    """A cluster of its own, whose processes have the environment of OpenTelemetry; its logs are JSON."""
    cluster = Cluster(tmp_path_factory.mktemp("traced"))
    with cluster.variables(**collector.variables):
        yield cluster
        stopped = cluster.shutdown()
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr


class Front:
    """Ports of the front end."""

    def __init__(self):
        self.port, self.grpc_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def ask(self, job, x, **headers):
        body = {"instances": [{"x": x}]}
        return httpx.post(f"{self.url}/models/{job}/predict", json=body, headers=headers, timeout=60)

    def infer(self, job, content, *metadata):
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            method = channel.unary_unary(
                "/inference.GRPCInferenceService/ModelInfer",
                inference.ModelInferRequest.SerializeToString,
                inference.ModelInferResponse.FromString,
            )
            return method(raw([content], (1,), model_name=job), timeout=60, metadata=metadata)


@pytest.fixture(scope="module")
def front():
    return Front()


@pytest.fixture(scope="module", params=["thread", "process"])
def job(request, cluster, front, tmp_path_factory):
    """A job whose operators run in threads or processes, beside the front end."""
    write(model := tmp_path_factory.mktemp("model"), HANDLER)
    name = f"traced-{request.param}"
    folder = cluster.configure(
        jobName=name,
        modelPath=model,
        executionMode=request.param,
        logFormat="json",
        http={"port": front.port, "grpcPort": front.grpc_port, "logFormat": "json"},
    )
    done = cluster.run("cluster-serving-start", "--http", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    yield name
    cluster.stop(name)


def tree(collector, trace, count, root=""):
    """Names of the spans of a trace, each with those of its children, once so many spans have arrived."""
    wait_until(lambda: len(collector.of(trace)) >= count)
    spans = collector.of(trace)

    def below(parent):
        return {span.name: below(span.id) for span in spans if span.parent == parent}

    assert len({span.id for span in spans}) == len(spans) == count
    return below(root)


def sent(job):
    """The spans of a request on its way from what has sent it."""
    return {f"send {job}": {f"process {job}": STEPS}}


def new_trace():
    trace = os.urandom(16).hex()
    return trace, f"00-{trace}-{PARENT}-01"


def test_a_request_over_http_is_one_tree_from_the_front_end_to_the_answer(job, front, collector):
    trace, traceparent = new_trace()
    answer = front.ask(job, 1, traceparent=traceparent, **{"x-request-id": "mine-1"})
    assert answer.status_code == 200
    assert answer.headers["traceresponse"].startswith(f"00-{trace}-")
    assert tree(collector, trace, 7, PARENT) == {"POST /models/{name}/predict": sent(job)}
    request, send, process, *steps = collector.of(trace)
    assert [span.kind for span in (request, send, process)] == ["SERVER", "PRODUCER", "CONSUMER"]
    assert [span.service for span in (request, send, process)] == [*["cluster-serving-http"] * 2, "cluster-serving-job"]
    assert process.links == ((trace, send.id),)
    assert process.attributes["cluster_serving.request"].endswith("/mine-1")
    assert process.attributes["messaging.batch.message_count"] == 1
    assert request.start <= send.start <= send.end <= request.end
    assert all(process.start <= span.start <= span.end <= process.end for span in steps)


def test_a_request_over_grpc_is_such_a_tree(job, front, collector):
    trace, traceparent = new_trace()
    front.infer(job, b"\0\0\0\0", ("traceparent", traceparent))
    assert tree(collector, trace, 7, PARENT) == {"inference.GRPCInferenceService/ModelInfer": sent(job)}


@pytest.mark.parametrize("client", ["sync", "asyncio", "many", "docs"])
def test_a_request_of_an_application_belongs_to_its_span(job, cluster, collector, client):
    expected = {"checkout": sent(job)} if client == "docs" else sent(job)
    program = [sys.executable, "-m", "tests.support.programs.traced_application"]
    environment = os.environ | collector.variables | {"OTEL_SERVICE_NAME": "application"}
    done = subprocess.run(
        [*program, str(cluster.redis_port), job, client], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert tree(collector, done.stdout.strip(), 7 + (client == "docs")) == {"application": expected}


def test_a_trace_begins_at_the_front_end_unless_its_client_wants_none(job, front, collector):
    unsampled, traceparent = new_trace()
    answer = front.ask(job, 1, traceparent=traceparent.removesuffix("01") + "00")
    assert answer.status_code == 200 and "traceresponse" not in answer.headers
    own = front.ask(job, 1).headers["traceresponse"].split("-")[1]
    assert tree(collector, own, 7) == {"POST /models/{name}/predict": sent(job)}
    assert collector.of(unsampled) == []


def lines(cluster, pattern, **wanted):
    """Lines of JSON in the logs of a kind of process that have these values."""
    found = []
    for log in cluster.state.glob(pattern):
        for line in log.read_text("utf8").splitlines():
            if line.startswith("{"):
                found.append(json.loads(line))
    return [line for line in found if wanted.items() <= line.items()]


def test_the_id_of_a_failed_request_leads_to_the_lines_of_its_front_end_and_its_slot(job, front, cluster, collector):
    def of_slot():
        return [line for line in lines(cluster, "flink-*/log/*.log", job=job) if "code" in line]

    trace, traceparent = new_trace()
    answer = front.ask(job, -1, traceparent=traceparent, **{"x-request-id": "over-http"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (500, "over-http")
    with pytest.raises(grpc.RpcError) as refused:
        front.infer(job, b"\0\0\x80\xbf", ("x-request-id", "over-grpc"))
    assert ("x-request-id", "over-grpc") in [(each.key, each.value) for each in refused.value.trailing_metadata()]
    with InputQueue(port=cluster.redis_port, name=job) as queue, pytest.raises(InferenceFailed) as failed:
        queue.predict({"x": -1}, timeout=60)

    wait_until(lambda: len(of_slot()) >= 3)
    by_request = {line["request"].rpartition("/")[2]: line for line in of_slot()}
    assert by_request.keys() == {"over-http", "over-grpc", failed.value.uri}
    assert by_request["over-http"].items() >= {"code": "INFERENCE_FAILED", "slot": 0, "trace": trace}.items()
    (told,) = lines(cluster, "http-*/http.log", trace=trace, level="ERROR")
    assert told["request"] == "over-http" and "no number" not in told["message"]
    failed_spans = ("POST /models/{name}/predict", f"process {job}")
    wait_until(lambda: {span.name for span in collector.of(trace) if span.failed} >= {*failed_spans})
    # The command knows the levels of such lines.
    printed = cluster.run("cluster-serving-cli", "logs", "--errors", cwd=cluster.folder / job).stdout
    assert failed.value.uri in printed and '"level":"INFO"' not in printed
