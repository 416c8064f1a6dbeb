"""The log of answers with a status of 5xx."""

import logging

import grpc
import httpx
import pytest

from cluster_serving.frontend import caller
from cluster_serving.frontend.errors import HttpVersionNotSupported, NotSupported
from cluster_serving.frontend.proto import original
from cluster_serving.frontend.server import failures
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput, ResultTimeout, ServingError
from cluster_serving.protocol.log_limit import LogLimit
from tests.support.fixtures import grpc_calls


@pytest.fixture(autouse=True)
def _nothing_was_told(monkeypatch, caplog):
    monkeypatch.setattr(failures, "_limit", LogLimit(2))
    caller.request_id.set("")
    caplog.set_level(logging.ERROR, failures.__name__)


def test_each_failure_is_logged_within_the_limit_of_its_reason_whatever_its_numbers_are(caplog):
    for milliseconds in range(100, 104):
        failures.note(ResultTimeout(f"no result within {milliseconds} ms"))
    failures.note(InvalidInput("the mistake of a client"))
    failures.note(NotSupported("a call that there is not"))
    failures.note(HttpVersionNotSupported("a version that there is not"))
    failures.note(ServingError("two\nlines"))
    assert caplog.messages == [
        "RESULT_TIMEOUT (504): no result within 100 ms",
        "RESULT_TIMEOUT (504): no result within 101 ms",
        "INTERNAL (500): two lines",
    ]


@pytest.mark.parametrize("milliseconds", ["1", "5e-324"])
def test_a_client_that_does_not_wait_long_leaves_no_line(serve, report, caplog, milliseconds):
    report(("x", "float32", (None, 2)))
    url, body = serve("--requestTimeout=100").url, {"instances": [{"x": [1, 2]}]}
    late = httpx.post(f"{url}/predict", json=body, headers={"x-timeout-ms": milliseconds})
    assert late.status_code == 504
    assert f"within {max(float(milliseconds) / 1000, 1e-6):g} s" in late.json()["error"]
    assert caplog.messages == []
    for headers in ({"x-timeout-ms": "1000"}, {}):
        httpx.post(f"{url}/predict", json=body, headers=headers)
    assert [message.partition(":")[0] for message in caplog.messages] == ["RESULT_TIMEOUT (504)"] * 2


def test_a_line_names_request_and_trace_and_not_what_the_model_says(caplog):
    caller.request_id.set("mine-1")
    caller.trace_id.set("4bf92f35")
    failures.note(InferenceFailed("ValueError: 'a secret' is no number"))
    caller.trace_id.set("")
    assert caplog.messages == ["INFERENCE_FAILED (500) request=mine-1 trace=4bf92f35"]


def test_all_apis_log_what_they_answer(serve, report, job, caplog):
    report(("x", "str", (None,)), state="stopped")
    front = serve()
    instances = {"instances": [{"x": "text"}]}
    for path, body in (
        ("predict", instances),
        (f"v1/models/{job}:predict", instances),
        ("v1/completions", {"model": job, "prompt": "text"}),
    ):
        failures._limit = LogLimit(2)
        caplog.clear()
        ids = [httpx.post(f"{front.url}/{path}", json=body).headers["x-request-id"] for _ in range(3)]
        assert [line.startswith("MODEL_NOT_READY (503): model ") for line in caplog.messages] == [True] * 2
        assert [line.endswith(f" request={sent}") for sent, line in zip(ids, caplog.messages, strict=False)] == [
            True
        ] * 2
    failures._limit = LogLimit(2)
    caplog.clear()
    with grpc.insecure_channel(front.grpc) as channel, pytest.raises(grpc.RpcError):
        message = original.PredictReq(modelName=job, input='{"instances": [{"x": "text"}]}')
        grpc_calls.caller(channel, "grpc.FrontEndGRPCService")("Predict", message, original.PredictReply)
    assert len(caplog.messages) == 1
