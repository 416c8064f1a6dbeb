"""v2 over gRPC, as it is on the wire: typed and raw contents, streams and errors."""

import grpc
import httpx
import ml_dtypes
import numpy as np
import pytest

from cluster_serving.frontend.api.v2.datatypes import DTYPES
from cluster_serving.frontend.proto import inference
from cluster_serving.frontend.server.offload import LARGE
from tests.support.fixtures.grpc_calls import caller, raw, typed

INFER = "/inference.GRPCInferenceService/ModelInfer"


@pytest.mark.parametrize("field", [0x2A, 0x32, 0x3A, 0x22])
def test_a_message_of_nothing_but_fields_is_refused_unread(serve, field):
    message = bytes([field, 0]) * LARGE
    with grpc.insecure_channel(serve().grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(INFER, None, None)(message, timeout=60)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert caught.value.details() == "the request has more than 4096 fields"


@pytest.mark.parametrize(
    ("datatype", "field", "values"),
    [
        ("BOOL", "bool_contents", [True, False]),
        ("INT8", "int_contents", [-128, 127]),
        ("INT16", "int_contents", [-5, 5]),
        ("INT32", "int_contents", [-(1 << 31), 5]),
        ("INT64", "int64_contents", [-(1 << 63), (1 << 63) - 1]),
        ("UINT8", "uint_contents", [0, 255]),
        ("UINT16", "uint_contents", [0, 5]),
        ("UINT32", "uint_contents", [0, (1 << 32) - 1]),
        ("UINT64", "uint64_contents", [0, (1 << 64) - 1]),
        ("FP32", "fp32_contents", [0.5, float("inf")]),
        ("FP64", "fp64_contents", [0.1, -1e300]),
    ],
)
def test_typed_contents_are_answered_in_kind(infer, job, datatype, field, values):
    reply = infer(typed(datatype, field, values, [1, 2]))
    assert (reply.model_name, reply.model_version, reply.id) == (job, "1", "7")
    output = reply.outputs[0]
    assert (output.name, output.datatype, list(output.shape)) == ("x", datatype, [1, 2])
    assert list(getattr(output.contents, field)) == values
    assert not reply.raw_output_contents


def test_a_version_that_is_not_served_is_not_found(infer):
    request = typed("FP32", "fp32_contents", [1, 2], [1, 2])
    request.model_version = "2"
    with pytest.raises(grpc.RpcError, match="version '2' of .* is not served; served are: 1") as raised:
        infer(request)
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND


def test_large_typed_contents_are_answered_too(infer):
    """They are read and written in another process, as they would keep this one from its other clients."""
    values = np.arange(300_000, dtype="f4")
    reply = infer(typed("FP32", "fp32_contents", values.tolist(), [1, len(values)]))
    np.testing.assert_array_equal(reply.outputs[0].contents.fp32_contents, values)
    with pytest.raises(grpc.RpcError, match="'x' has 300000 elements; FP32 of shape .1, 2. needs 2|300000"):
        infer(typed("FP32", "fp32_contents", values.tolist(), [1, 2]))


def test_too_many_strings_are_refused(infer):
    with pytest.raises(grpc.RpcError) as caught:
        infer(typed("BYTES", "bytes_contents", [b""] * ((1 << 20) + 1), [1, (1 << 20) + 1]))
    assert "1048577 elements of BYTES; at most 1048576 are taken" in caught.value.details()


@pytest.mark.parametrize("datatype", DTYPES)
def test_raw_contents_are_answered_raw(infer, datatype):
    array = np.arange(6).reshape(3, 2).astype(DTYPES[datatype])
    request = inference.ModelInferRequest(raw_input_contents=[array.tobytes()])
    request.inputs.add(name="x", datatype=datatype, shape=[3, 2])
    reply = infer(request)
    assert list(reply.raw_output_contents) == [array.tobytes()]
    assert (reply.outputs[0].datatype, list(reply.outputs[0].shape)) == (datatype, [3, 2])


def test_bfloat16_becomes_float32_without_loss(infer):
    values = np.array([[1.0, -0.5], [3e38, np.inf]]).astype(ml_dtypes.bfloat16)
    reply = infer(raw([values.tobytes()], (2, 2), "BF16"))
    assert reply.outputs[0].datatype == "FP32"
    assert list(reply.raw_output_contents) == [values.astype("<f4").tobytes()]


def mixed():
    request = typed("FP32", "fp32_contents", [1, 2], [1, 2])
    request.raw_input_contents.append(b"12345678")
    return request


@pytest.mark.parametrize(
    ("request_message", "message"),
    [
        (raw([b"1234567"]), "'x' has 7 bytes; FP32 of shape .1, 2. needs 8"),
        (raw([b"12345678"] * 2), "1 inputs and 2 raw_input_contents"),
        (raw([b"12345678"], (-1, 2)), "shape"),
        (raw([b"12345678"], (1 << 60, 1 << 60)), "needs"),
        (raw([b""], (0, 1 << 61)), "no tensor can have"),
        (raw([b""], [0] * 33), "up to 32 sizes"),
        (inference.ModelInferRequest(inputs=[{}] * 1025), "more than 1024 inputs"),
        (inference.ModelInferRequest(outputs=[{}] * 1025), "more than 1024 inputs or outputs"),
        (raw([b"\xff\xff\xff\xff1"], (1, 1), "BYTES"), "element 0 reaches beyond"),
        (raw([b"12345678"], (1, 2), "BF16"), "'x' has 8 bytes; BF16 of shape .1, 2. needs 4"),
        (typed("BF16", "fp32_contents", [1, 2], [1, 2]), "'x' is BF16, for which only raw_input_contents"),
        (raw([]), "0 elements"),
        (mixed(), "both contents and raw_input_contents"),
        (typed("FP16", "fp32_contents", [1, 2], [1, 2]), "only raw_input_contents"),
        (typed("INT8", "int_contents", [1, 300], [1, 2]), "300; expected a whole number from -128 to 127"),
        (typed("INT8", "fp32_contents", [1, 2], [1, 2]), "has fp32_contents; expected int_contents"),
        (typed("FP32", "fp32_contents", [1, 2, 3], [1, 2]), "3 elements"),
        (typed("FP32", "fp32_contents", [1, 2], [2]), r"'x' has shape \[2\]; expected \[-1, -1\]"),
        (inference.ModelInferRequest(), "has the inputs none; the model expects x"),
    ],
)
def test_wrong_requests_are_invalid_arguments(infer, request_message, message):
    with pytest.raises(grpc.RpcError, match=message) as raised:
        infer(request_message)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_model_of_a_dtype_that_v2_does_not_have_is_described(serve, report, job):
    report(("x", "complex64", (None, 2)))
    with grpc.insecure_channel(serve().grpc) as channel:
        call = caller(channel, "inference.GRPCInferenceService")
        reply = call("ModelConfig", inference.ModelConfigRequest(name=job), inference.ModelConfigResponse)
        assert inference.DataType.Name(reply.config.input[0].data_type) == "TYPE_INVALID"


@pytest.mark.parametrize(
    ("device", "kind", "gpus"),
    [
        ("cpu", "KIND_CPU", []),
        ("cuda:1", "KIND_GPU", [1]),
        ("npu:0", "KIND_MODEL", []),
        ("cuda:0,cpu", "KIND_MODEL", []),
    ],
)
def test_the_configuration_tells_the_devices_of_the_slots(serve, report, job, device, kind, gpus):
    report(("x", "float32", (None, 2)), device=device)
    with grpc.insecure_channel(serve().grpc) as channel:
        call = caller(channel, "inference.GRPCInferenceService")
        reply = call("ModelConfig", inference.ModelConfigRequest(name=job), inference.ModelConfigResponse)
        (group,) = reply.config.instance_group
        assert (group.name, group.count, list(group.gpus)) == (device, 1, gpus)
        assert inference.ModelInstanceGroup.Kind.Name(group.kind) == kind


def test_other_errors_have_the_status_of_the_table(channel, infer, job):
    call = caller(channel, "inference.GRPCInferenceService")
    with pytest.raises(grpc.RpcError, match="no model 'another'") as raised:
        call("ModelMetadata", inference.ModelMetadataRequest(name="another"), inference.ModelMetadataResponse)
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND
    assert not call("ModelReady", inference.ModelReadyRequest(name="another"), inference.ModelReadyResponse).ready
    with pytest.raises(grpc.RpcError, match="SystemSharedMemoryStatus is not supported here") as raised:
        call("SystemSharedMemoryStatus", inference.ServerLiveRequest(), inference.ServerLiveResponse)
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
    slow = typed("FP32", "fp32_contents", [1, 2], [1, 2])
    slow.parameters["sequence_id"].int64_param = 5
    with pytest.raises(grpc.RpcError, match="sequence_id"):
        infer(slow)


def test_a_stream_is_answered_in_order_beyond_failures_and_each_inference_counts(front, channel, job):
    def requests():
        for number in range(300):
            request = typed("INT64", "int64_contents", [number, number], [1, 2])
            request.model_name, request.id = job if number % 10 else "another", str(number)
            yield request

    stub = channel.stream_stream(
        "/inference.GRPCInferenceService/ModelStreamInfer",
        inference.ModelInferRequest.SerializeToString,
        inference.ModelStreamInferResponse.FromString,
    )
    for number, reply in enumerate(stub(requests(), timeout=60)):
        assert reply.infer_response.id == str(number)
        if number % 10:
            assert list(reply.infer_response.outputs[0].contents.int64_contents) == [number, number]
        else:
            assert "no model 'another'" in reply.error_message
    assert number == 299
    text = httpx.get(f"{front.url}/metrics", headers={"accept": "text/plain"}).text
    for line in (
        f'requests_total{{model="{job}",protocol="grpc",status="200",version="1"}} 270.0',
        'requests_total{model="",protocol="grpc",status="404",version=""} 30.0',
        f'request_seconds_count{{model="{job}",protocol="grpc",version="1"}} 270.0',
        f'instances_count{{model="{job}",protocol="grpc"}} 270.0',
    ):
        assert f"cluster_serving_http_{line}" in text
