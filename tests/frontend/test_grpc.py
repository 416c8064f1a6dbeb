"""gRPC as it is on the wire: typed and raw contents, streams, deadlines, TLS, and the original's service."""

import json
import subprocess
import threading

import grpc
import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.frontend.api.v2 import messages as v2_messages
from cluster_serving.frontend.api.v2.datatypes import DTYPES
from cluster_serving.frontend.api.v2.service import InferResponse
from cluster_serving.frontend.proto import inference, original
from cluster_serving.frontend.server.grpc import ListenError
from cluster_serving.frontend.server.keys import new_key
from cluster_serving.protocol.errors import InvalidInput
from tests.support.waiting import wait_until


@pytest.fixture
def certificate(tmp_path):
    """PEM files of a certificate for localhost, and of its key."""
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, *names, "-keyout", key, "-out", chain], check=True, capture_output=True)
    return chain, key


def caller(channel, service):
    """Calls a unary method of a service by name."""

    def call(method, message, reply, timeout=60, **options):
        path = f"/{service}/{method}"
        stub = channel.unary_unary(path, type(message).SerializeToString, reply.FromString)
        return stub(message, timeout=timeout, **options)

    return call


@pytest.fixture
def front(serve, report, echo):
    report(("x", "", (None, None)))
    return serve()


@pytest.fixture
def channel(front):
    with grpc.insecure_channel(front.grpc) as channel:
        yield channel


@pytest.fixture
def infer(channel, job):
    """Sends a ModelInferRequest for the job of the test."""
    call = caller(channel, "inference.GRPCInferenceService")

    def infer(message, **options):
        message.model_name = job
        return call("ModelInfer", message, inference.ModelInferResponse, **options)

    return infer


def typed(datatype, field, values, shape):
    request = inference.ModelInferRequest(id="7")
    tensor = request.inputs.add(name="x", datatype=datatype, shape=shape)
    getattr(tensor.contents, field).extend(values)
    return request


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


@pytest.mark.usefixtures("echo")
def test_compressed_messages_are_taken_if_that_is_allowed(serve, report, job):
    report(("x", "", (None, None)))
    message = typed("FP32", "fp32_contents", [1, 2], [1, 2])
    message.model_name = job

    def infer(front):
        with grpc.insecure_channel(front.grpc) as channel:
            call = caller(channel, "inference.GRPCInferenceService")
            return call("ModelInfer", message, inference.ModelInferResponse, compression=grpc.Compression.Gzip)

    assert infer(serve("--grpcCompression=true")).id == "7"
    with pytest.raises(grpc.RpcError) as caught:
        infer(serve())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_message_that_quotes_too_much_is_cut_off_and_the_code_arrives(infer):
    request = typed("FP32", "fp32_contents", [1, 2], [1, 2])
    for _ in range(2):
        request.outputs.add(name="é" * 20_000)
    with pytest.raises(grpc.RpcError) as caught:
        infer(request)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details().startswith("the request asks for the outputs")


def raw(data, shape=(1, 2), datatype="FP32", **more):
    request = inference.ModelInferRequest(raw_input_contents=data, **more)
    request.inputs.add(name="x", datatype=datatype, shape=shape)
    return request


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
        (raw([b"1234"], (1, 2), "BF16"), "BF16, which is not supported"),
        (raw([]), "0 elements"),
        (mixed(), "contents beside raw_input_contents"),
        (typed("FP16", "fp32_contents", [1, 2], [1, 2]), "only raw_input_contents"),
        (typed("INT8", "int_contents", [1, 300], [1, 2]), "INT8 holds -128 to 127"),
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


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["x", "y", ""]),
            st.sampled_from([*DTYPES, "BYTES", "BF16", "?"]),
            st.lists(st.integers(-1, 3) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=3),
            st.lists(st.integers(0, 300), max_size=4),
        ),
        max_size=3,
    ),
    st.lists(st.binary(max_size=16), max_size=3),
)
def test_hostile_messages_are_read_or_refused(tensors, contents):
    message = inference.ModelInferRequest(raw_input_contents=contents)
    for name, datatype, shape, numbers in tensors:
        tensor = message.inputs.add(name=name, datatype=datatype, shape=shape)
        tensor.contents.int_contents.extend(numbers)
    try:
        v2_messages.decode(message)
    except InvalidInput as error:
        assert str(error)


def test_a_model_of_a_dtype_that_v2_does_not_have_is_described(serve, report, job):
    report(("x", "complex64", (None, 2)))
    with grpc.insecure_channel(serve().grpc) as channel:
        call = caller(channel, "inference.GRPCInferenceService")
        reply = call("ModelConfig", inference.ModelConfigRequest(name=job), inference.ModelConfigResponse)
        assert inference.DataType.Name(reply.config.input[0].data_type) == "TYPE_INVALID"


def test_text_travels_as_bytes():
    texts = np.array(["ä", "b"], object)
    reply = v2_messages.encode(InferResponse("m", "1", "", {"y": texts}), raw=False)
    assert list(reply.outputs[0].contents.bytes_contents) == ["ä".encode(), b"b"]
    half = v2_messages.encode(InferResponse("m", "1", "", {"y": texts, "h": np.zeros(2, "f2")}), raw=False)
    assert list(half.raw_output_contents) == [b"\x02\0\0\0\xc3\xa4\x01\0\0\0b", b"\0\0\0\0"]


def test_other_errors_have_the_status_of_the_table(channel, infer, job):
    call = caller(channel, "inference.GRPCInferenceService")
    with pytest.raises(grpc.RpcError, match="no model 'another'") as raised:
        call("ModelMetadata", inference.ModelMetadataRequest(name="another"), inference.ModelMetadataResponse)
    assert raised.value.code() == grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.RpcError) as raised:
        call("SystemSharedMemoryStatus", inference.ServerLiveRequest(), inference.ServerLiveResponse)
    assert raised.value.code() == grpc.StatusCode.UNIMPLEMENTED
    slow = typed("FP32", "fp32_contents", [1, 2], [1, 2])
    slow.parameters["sequence_id"].int64_param = 5
    with pytest.raises(grpc.RpcError, match="sequence_id"):
        infer(slow)


def test_a_stream_is_answered_in_order_beyond_failures(channel, job):
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


def test_deadlines_and_cancelled_calls_end_their_requests(serve, report, job, db):
    report(("x", "", (None, None)))
    front = serve()
    with grpc.insecure_channel(front.grpc) as channel:
        call = caller(channel, "inference.GRPCInferenceService")
        request = typed("FP32", "fp32_contents", [1, 2], [1, 2])
        request.model_name = job
        with pytest.raises(grpc.RpcError) as raised:
            call("ModelInfer", request, inference.ModelInferResponse, timeout=0.5)
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        request.parameters["timeout"].int64_param = 200_000
        with pytest.raises(grpc.RpcError, match="no result from job .* within 0.") as raised:
            call("ModelInfer", request, inference.ModelInferResponse)
        assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        del request.parameters["timeout"]
        stub = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            inference.ModelInferRequest.SerializeToString,
            inference.ModelInferResponse.FromString,
        )
        future = stub.future(request)
        wait_until(lambda: front.front.dispatch.dispatcher("other").waiting == 1)
        future.cancel()
        wait_until(lambda: front.front.dispatch.dispatcher("other").waiting == 0)


def test_stopping_waits_for_calls(serve, report, job, redis_server):
    import redis

    from cluster_serving.connectors.answer import Answer, write_answers
    from cluster_serving.connectors.stream import StreamReader, create_group
    from cluster_serving.protocol.results import encode_result

    report(("x", "", (None, None)))
    front = serve()
    with grpc.insecure_channel(front.grpc) as channel, redis.Redis.from_url(redis_server.url) as client:
        create_group(client, job)
        request = typed("FP32", "fp32_contents", [1, 2], [1, 2])
        request.model_name = job
        stub = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            inference.ModelInferRequest.SerializeToString,
            inference.ModelInferResponse.FromString,
        )
        future = stub.future(request, timeout=60)
        wait_until(lambda: client.xlen(job) == 1)
        stopping = threading.Thread(target=front.stop)
        stopping.start()
        entry = StreamReader(client, job, "test-0", claim_idle_ms=60_000).read(10, block_ms=5000)[0]
        fields = encode_result(True, ["x"], list(entry.decode()[1].values()))
        write_answers(client, job, 60, [Answer(entry, "", fields)])
        assert list(future.result().outputs[0].contents.fp32_contents) == [1, 2]
        stopping.join(60)


def test_a_taken_port_is_said(front, serve):
    import asyncio

    from cluster_serving.frontend import arguments
    from cluster_serving.frontend.server.admission import Admission
    from cluster_serving.frontend.server.grpc import GrpcServer
    from cluster_serving.frontend.server.metrics import Metrics

    port = front.grpc.rpartition(":")[2]

    async def main():
        options = arguments.read([f"--grpcPort={port}"], {})
        with pytest.raises(ListenError, match=f"port {port} for gRPC"):
            await GrpcServer(options, [], Admission(options), Metrics()).start()

    asyncio.run(main())


def test_large_messages_are_refused_by_size(serve, report, echo, job):
    report(("x", "", (None, None)))
    with grpc.insecure_channel(serve("--maxBodyBytes=10000").grpc) as channel:
        call = caller(channel, "inference.GRPCInferenceService")
        request = raw([bytes(80_000)], (1, 20_000))
        request.model_name = job
        with pytest.raises(grpc.RpcError, match="larger than max") as raised:
            call("ModelInfer", request, inference.ModelInferResponse)
        assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_calls_need_a_key_where_there_are_keys(serve, report, echo, job, tmp_path):
    report(("x", "", (None, None)))
    key, line = new_key("tester")
    (tmp_path / "keys").write_text(line)
    front = serve(f"--apiKeysFile={tmp_path / 'keys'}")
    request = typed("FP32", "fp32_contents", [1, 2], [1, 2])
    request.model_name = job
    with grpc.insecure_channel(front.grpc) as channel:
        call = caller(channel, "inference.GRPCInferenceService")
        assert call("ServerLive", inference.ServerLiveRequest(), inference.ServerLiveResponse).live
        for metadata in ([], [("authorization", "Bearer wrong")]):
            with pytest.raises(grpc.RpcError, match="API key") as raised:
                call("ModelInfer", request, inference.ModelInferResponse, metadata=metadata)
            assert raised.value.code() == grpc.StatusCode.UNAUTHENTICATED
        for metadata in ([("authorization", f"Bearer {key}")], [("x-api-key", key)]):
            assert call("ModelInfer", request, inference.ModelInferResponse, metadata=metadata).outputs
        text = httpx.get(f"{front.url}/metrics", headers={"accept": "text/plain", "x-api-key": key}).text
        assert f'cluster_serving_http_requests_total{{model="{job}",protocol="grpc",status="200"}} 2.0' in text


def test_tls_is_that_of_https(serve, report, echo, job, certificate):
    report(("x", "", (None, None)))
    chain, private_key = certificate
    options = [f"--httpsCertificatePath={chain}", f"--httpsPrivateKeyPath={private_key}"]
    front = serve("--httpsEnabled=true", *options)
    assert front.urls[-1].startswith("grpcs://127.0.0.1:")
    credentials = grpc.ssl_channel_credentials(chain.read_bytes())
    address = front.grpc.replace("127.0.0.1", "localhost")
    with grpc.secure_channel(address, credentials) as channel:
        call = caller(channel, "inference.GRPCInferenceService")
        assert call("ServerLive", inference.ServerLiveRequest(), inference.ServerLiveResponse).live


def test_the_originals_service_answers(channel, job):
    call = caller(channel, "grpc.FrontEndGRPCService")
    assert "grpc serving frontend" in call("Ping", original.Empty(), original.StringReply).message
    for method, message in {
        "GetAllModels": original.Empty(),
        "GetModelsWithName": original.GetModelsWithNameReq(modelName=job),
        "GetModelsWithNameAndVersion": original.GetModelsWithNameAndVersionReq(modelName=job, modelVersion="1"),
    }.items():
        found = call(method, message, original.ModelsReply).clusterServingMetaDatas
        assert ("x", "1") in [(row.features, row.modelVersion) for row in found if row.modelName == job]
    asked = original.PredictReq(modelName=job, modelVersion="1", input='{"instances": [{"x": [1, 2]}, {"x": [3]}]}')
    predictions = json.loads(call("Predict", asked, original.PredictReply).response)
    assert [json.loads(json.loads(text)["value"])["data"] for text in predictions] == [[1, 2], [3]]
    metrics = call("GetMetrics", original.Empty(), original.MetricsReply).metrics
    assert {row.count for row in metrics if row.name.endswith("redis.put")} >= {1}
    with pytest.raises(grpc.RpcError, match="no 'instances'"):
        call("Predict", original.PredictReq(modelName=job, input="{}"), original.PredictReply)
    with pytest.raises(grpc.RpcError, match="no model"):
        call("GetModelsWithName", original.GetModelsWithNameReq(modelName="another"), original.ModelsReply)
