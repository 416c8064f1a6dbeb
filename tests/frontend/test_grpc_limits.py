"""gRPC: what is read of a message before it is known who sends it, and how much a message may cost."""

import threading
import time

import grpc
import httpx
import pytest

from cluster_serving.frontend.api.v2 import messages as v2_messages
from cluster_serving.frontend.proto import inference
from cluster_serving.frontend.server.keys import new_key
from cluster_serving.frontend.server.offload import LARGE
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from tests.support.waiting import wait_until

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
NO_MESSAGE = b"\xff\xff\xff"


def test_a_message_is_not_read_before_its_sender_is_admitted(serve, tmp_path):
    key, line = new_key("tester")
    (tmp_path / "keys").write_text(line)
    front = serve(f"--apiKeysFile={tmp_path / 'keys'}")
    with grpc.insecure_channel(front.grpc) as channel:
        for metadata, status in (([], "UNAUTHENTICATED"), ([("x-api-key", key)], "INVALID_ARGUMENT")):
            for method in (INFER, "/inference.GRPCInferenceService/ModelConfig", "/grpc.FrontEndGRPCService/Predict"):
                with pytest.raises(grpc.RpcError) as caught:
                    channel.unary_unary(method, None, None)(NO_MESSAGE, metadata=metadata, timeout=60)
                assert caught.value.code() is grpc.StatusCode[status]
        replies = channel.stream_stream(STREAM, None, None)(iter([NO_MESSAGE] * 2), metadata=metadata, timeout=60)
        read = map(inference.ModelStreamInferResponse.FromString, replies)
        assert [reply.error_message for reply in read] == ["the message is no ModelInferRequest"] * 2


@pytest.mark.parametrize("field", [0x2A, 0x32, 0x3A, 0x22])
def test_a_message_of_nothing_but_fields_is_refused_unread(serve, field):
    message = bytes([field, 0]) * LARGE
    with grpc.insecure_channel(serve().grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(INFER, None, None)(message, timeout=60)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert caught.value.details() == "the request has more than 4096 fields"


def test_an_envelope_has_all_but_the_tensors():
    request = inference.ModelInferRequest(model_name="m", model_version="2", id="7", raw_input_contents=[b"a" * 300])
    request.parameters["timeout"].int64_param = 5
    request.inputs.add(name="x" * 200, datatype="FP32", shape=[1])
    request.outputs.add(name="y")
    message, tensors = v2_messages.envelope(request.SerializeToString())
    assert 200 < tensors < 230
    assert list(message.raw_input_contents) == [b""]
    for field in ("inputs", "outputs", "raw_input_contents"):
        request.ClearField(field)
        message.ClearField(field)
    assert message == request


@pytest.mark.parametrize("text", [NO_MESSAGE, b"\x0a\x05m", b"\x0a", b"\x08\x01", b"\x0a\x01\xff"])
def test_an_envelope_that_is_none_is_refused(text):
    with pytest.raises(InvalidInput, match="is no ModelInferRequest"):
        v2_messages.envelope(text)
    with pytest.raises(RequestTooLarge):
        v2_messages.envelope(b"\x2a\x00" * 5000)


def test_stopping_takes_no_longer_for_two_protocols_than_for_one(serve, report, job, db):
    report(("x", "float32", (None, None)))
    front = serve("--shutdownTimeout=2")
    request = inference.ModelInferRequest(model_name=job, raw_input_contents=[bytes(8)])
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    answers = []

    def ask():
        with httpx.Client() as client:
            answers.append(client.post(f"{front.url}/predict", json={"instances": [{"x": [1, 2]}]}, timeout=60))

    over_http = threading.Thread(target=ask)
    over_http.start()
    with grpc.insecure_channel(front.grpc) as channel:
        future = channel.unary_unary(INFER, None, None).future(request.SerializeToString(), timeout=60)
        wait_until(lambda: db.xlen(job) == 2)
        started = time.monotonic()
        front.stop()
        assert time.monotonic() - started < 3.5
        assert future.exception(60) is not None
    over_http.join()
    assert [answer.status_code for answer in answers] == [500]
