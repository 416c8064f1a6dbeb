"""The log of answers with a status of 5xx."""

import logging

import grpc
import httpx
import pytest

from cluster_serving.frontend.proto import original
from cluster_serving.frontend.server import failures
from cluster_serving.protocol.errors import InvalidInput, ResultTimeout, ServingError
from tests.support.fixtures.grpc_calls import caller


@pytest.fixture(autouse=True)
def _nothing_was_told(monkeypatch, caplog):
    monkeypatch.setattr(failures, "_told", {})
    caplog.set_level(logging.ERROR, failures.__name__)


def test_a_reason_is_logged_once_whatever_its_numbers_are(caplog, monkeypatch):
    for milliseconds in range(100, 103):
        failures.note(ResultTimeout(f"no result within {milliseconds} ms"))
    failures.note(InvalidInput("the mistake of a client"))
    failures.note(ServingError("two\nlines"))
    assert caplog.messages == ["RESULT_TIMEOUT (504): no result within 100 ms", "INTERNAL (500): two lines"]
    caplog.clear()
    monkeypatch.setattr(failures, "_EVERY", 0.0)
    failures.note(ResultTimeout("no result within 9 ms"))
    assert caplog.messages == ["RESULT_TIMEOUT (504): no result within 9 ms (2 more since the last line)"]


def test_reasons_are_bounded():
    for number in range(1000):
        failures.note(ServingError(chr(0x4E00 + number)))
    assert len(failures._told) == failures._MOST_REASONS


def test_all_apis_log_what_they_answer(serve, report, job, caplog):
    report(("x", "str", (None,)), state="stopped")
    front = serve()
    instances = {"instances": [{"x": "text"}]}
    for path, body in (
        ("predict", instances),
        (f"v1/models/{job}:predict", instances),
        ("v1/completions", {"model": job, "prompt": "text"}),
    ):
        failures._told.clear()
        caplog.clear()
        for _ in range(3):
            assert httpx.post(f"{front.url}/{path}", json=body).status_code == 503
        (line,) = caplog.messages
        assert line.startswith("MODEL_NOT_READY (503): model ")
    failures._told.clear()
    caplog.clear()
    with grpc.insecure_channel(front.grpc) as channel, pytest.raises(grpc.RpcError):
        message = original.PredictReq(modelName=job, input='{"instances": [{"x": "text"}]}')
        caller(channel, "grpc.FrontEndGRPCService")("Predict", message, original.PredictReply)
    assert len(caplog.messages) == 1
