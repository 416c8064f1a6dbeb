"""The gRPC server: admission, sizes, compression, errors, deadlines and stopping."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import psutil
import pytest

from cluster_serving.frontend import arguments
from cluster_serving.frontend.dataplane import DataPlane
from cluster_serving.frontend.errors import StartError
from cluster_serving.frontend.proto import inference, original
from cluster_serving.frontend.server.admission.keys import new_key
from cluster_serving.protocol.keys import JobKeys
from tests.chaos.proxy import Proxy
from tests.support.fixtures.front_end import Running, connect
from tests.support.fixtures.grpc_calls import caller, raw, typed
from tests.support.fixtures.waiting import wait_until

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
        assert [reply.error_message for reply in read] == ["the message is not a ModelInferRequest"] * 2


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
        assert (
            f'cluster_serving_http_requests_total{{model="{job}",protocol="grpc",status="200",version="1"}} 2.0' in text
        )


def test_a_stream_for_whose_messages_there_is_no_memory_ends(serve):
    front = serve("--maxBodyBytes=1000000", "--maxBodyMemory=1000000")
    message = inference.ModelInferRequest(model_name="m", raw_input_contents=[bytes(300_000)])
    head = b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 999000\r\n\r\n"
    with connect(front.url) as slow, grpc.insecure_channel(front.grpc) as channel:
        slow.sendall(head + bytes(900_000))
        wait_until(lambda: front.front.admission.bodies.used > 800_000)
        for messages in (iter([message.SerializeToString()]), endless(message.SerializeToString())):
            replies = channel.stream_stream(STREAM, None, None)(messages, timeout=60)
            with pytest.raises(grpc.RpcError, match="maxBodyMemory") as caught:
                next(replies)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("has_call", [True, False])
def test_a_client_may_ping_while_nothing_is_sent(serve, has_call):
    """By default, gRPC ends such a connection with the fourth ping."""
    options = [("grpc.keepalive_time_ms", 1500), ("grpc.keepalive_permit_without_calls", 1)]
    options += [("grpc.http2.max_pings_without_data", 0)]
    states = []
    front, go_on = serve(), threading.Event()

    def late():
        go_on.wait()
        yield NO_MESSAGE

    with grpc.insecure_channel(front.grpc, options) as channel:
        channel.subscribe(states.append, try_to_connect=True)
        wait_until(lambda: grpc.ChannelConnectivity.READY in states)
        replies = channel.stream_stream(STREAM, None, None)(late(), timeout=60) if has_call else iter(())
        time.sleep(10)
        go_on.set()
        assert len([*replies]) == has_call
        assert states[states.index(grpc.ChannelConnectivity.READY) :] == [grpc.ChannelConnectivity.READY]


def endless(message):
    yield message
    threading.Event().wait(120)


def test_a_mistake_in_the_front_end_is_told_to_the_request_of_a_stream(serve, report, job, monkeypatch, caplog):
    report(("x", "", (None, None)))

    async def infer(*_):
        raise RuntimeError("a mistake")

    monkeypatch.setattr(DataPlane, "infer", infer)
    request = typed("FP32", "fp32_contents", [1, 2], [1, 2])
    request.model_name = job
    with grpc.insecure_channel(serve().grpc) as channel:
        replies = channel.stream_stream(STREAM, None, None)(iter([request.SerializeToString()] * 2), timeout=60)
        messages = [inference.ModelStreamInferResponse.FromString(reply).error_message for reply in replies]
    assert messages == ["unexpected RuntimeError"] * 2
    assert "a mistake" in caplog.text


def test_large_messages_are_refused_by_size(serve, report, echo, job):
    report(("x", "", (None, None)))
    with grpc.insecure_channel(serve("--maxBodyBytes=10000").grpc) as channel:
        call = caller(channel, "inference.GRPCInferenceService")
        request = raw([bytes(80_000)], (1, 20_000))
        request.model_name = job
        with pytest.raises(grpc.RpcError, match="larger than max") as raised:
            call("ModelInfer", request, inference.ModelInferResponse)
        assert raised.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


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


def test_metadata_names_priority_and_timeout(serve, report, job, db):
    report(("x", "", (None, None)))
    request = typed("FP32", "fp32_contents", [1, 2], [1, 2])
    request.model_name = job
    original_request = original.PredictReq(input='{"instances": [{"x": [1, 2]}]}')
    calls = [
        ("inference.GRPCInferenceService", "ModelInfer", request, inference.ModelInferResponse),
        ("grpc.FrontEndGRPCService", "Predict", original_request, original.PredictReply),
    ]
    wrong = [
        ([("x-priority", "HIGH")], "the metadata x-priority is 'HIGH'; expected high, normal, low"),
        ([("x-priority", "low")] * 2, "the metadata x-priority is 'low, low'"),
        ([("x-timeout-ms", "soon")], "the metadata x-timeout-ms is 'soon'; expected a number of milliseconds"),
    ]
    with grpc.insecure_channel(serve().grpc) as channel:
        for service, method, *messages in calls:
            call = caller(channel, service)
            with pytest.raises(grpc.RpcError, match="no result from job") as raised:
                call(method, *messages, metadata=[("x-priority", "low"), ("x-timeout-ms", "100")])
            assert raised.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            # Withdrawn, the request leaves its stream empty.
            assert [name for name in JobKeys(job).streams if db.exists(name)] == [f"{job}:low"]
            db.delete(f"{job}:low")
            for metadata, text in wrong:
                with pytest.raises(grpc.RpcError) as raised:
                    call(method, *messages, metadata=metadata)
                assert (raised.value.code(), text in raised.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        stub = channel.stream_stream(STREAM, None, inference.ModelStreamInferResponse.FromString)
        for metadata, text in wrong:
            with pytest.raises(grpc.RpcError) as raised:
                next(stub(iter([request.SerializeToString()]), metadata=metadata, timeout=60))
            assert text in raised.value.details()
        (reply,) = stub(iter([request.SerializeToString()]), metadata=[("x-timeout-ms", "100")], timeout=60)
        assert "no result from job" in reply.error_message


def test_a_taken_port_is_said(front, serve, capfd):
    import asyncio

    from cluster_serving.frontend.server.access_log import AccessLog
    from cluster_serving.frontend.server.admission.admission import Admission
    from cluster_serving.frontend.server.grpc.server import GrpcServer
    from cluster_serving.frontend.server.metrics import Metrics

    port = front.grpc.rpartition(":")[2]

    async def main():
        options = arguments.read([f"--grpcPort={port}"], {})
        with pytest.raises(StartError, match=f"port {port} for gRPC"):
            await GrpcServer(options, [], Admission(options), Metrics(), AccessLog(False)).start()

    asyncio.run(main())
    assert "chttp2_server" not in capfd.readouterr().err


def test_stopping_waits_for_calls(serve, report, job, redis_server):
    import redis

    from cluster_serving.connectors.slot.answer import Answer, write_answers
    from cluster_serving.connectors.slot.groups import create_group
    from cluster_serving.connectors.slot.stream import StreamReader
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
        write_answers(client, job, 60, [Answer(entry, fields)])
        assert list(future.result().outputs[0].contents.fp32_contents) == [1, 2]
        stopping.join(60)


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


@pytest.mark.usefixtures("echo", "vectors")
def test_the_access_log_has_a_line_per_call(serve, keys, caplog):
    file, key = keys
    front = serve("--accessLog=true", f"--apiKeysFile={file}")
    with caplog.at_level(logging.INFO, "cluster_serving.access"), grpc.insecure_channel(front.grpc) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive", None, None)
        live(b"", metadata=[("x-request-id", "mine-1"), ("x-api-key", key)])
        with pytest.raises(grpc.RpcError):
            channel.unary_unary(INFER, None, None)(b"", metadata=[("x-request-id", "not valid")])
        wait_until(lambda: len(caplog.messages) == 2)
    first, second = caplog.messages
    assert first.startswith("GRPC /inference.GRPCInferenceService/ServerLive 200 ")
    assert first.endswith(" ms id=mine-1 client=alice")
    assert second.startswith(f"GRPC {INFER} 401 ")
    assert second.endswith("client=-")
    assert "not valid" not in second


@pytest.fixture
def stalling(serve, vectors, db, job):
    """A front end, and a client whose network can stall; it has asked for 20 MB, which `echo` answers."""
    front = serve("--writeTimeout=1")
    proxy = Proxy(int(front.grpc.rpartition(":")[2]))
    large = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{proxy.port}", options=large) as channel, ThreadPoolExecutor() as pool:
        request = raw([bytes(20_000_000)], (1, 5_000_000), model_name=job)
        call = caller(channel, "inference.GRPCInferenceService")
        asked = pool.submit(call, "ModelInfer", request, inference.ModelInferResponse)
        wait_until(lambda: db.xlen(job))
        yield front, proxy, asked
        proxy.close()


def connections(front):
    port = int(front.grpc.rpartition(":")[2])
    mine = psutil.Process().net_connections("tcp")
    return [one for one in mine if one.laddr.port == port and one.raddr]


def test_a_client_that_reads_nothing_is_hung_up_on(stalling, request):
    front, proxy, asked = stalling
    assert connections(front)
    proxy.stall()
    request.getfixturevalue("echo")
    wait_until(lambda: not connections(front))
    proxy.resume()
    with pytest.raises(grpc.RpcError) as raised:
        asked.result(60)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_client_that_reads_slowly_gets_its_answer(stalling, request):
    _, proxy, asked = stalling
    proxy.delay = 0.02
    request.getfixturevalue("echo")
    assert asked.result(60).raw_output_contents == [bytes(20_000_000)]


@pytest.mark.usefixtures("echo", "vectors")
@pytest.mark.parametrize("path", [INFER, STREAM])
def test_a_client_that_leaves_a_call_unread_is_hung_up_on(serve, job, path):
    front = serve("--writeTimeout=1")
    request = raw([bytes(20_000_000)], (1, 5_000_000), model_name=job).SerializeToString()
    with grpc.insecure_channel(front.grpc, [("grpc.max_receive_message_length", -1)]) as channel:
        # gRPC reads the connection, but of a stream no more than is asked for.
        replies = channel.stream_stream(path, None, None)(iter([request]))
        wait_until(lambda: connections(front))
        wait_until(lambda: not connections(front))
        with pytest.raises(grpc.RpcError) as raised:
            next(replies)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_second_front_end_takes_another_port_if_none_was_chosen(job):
    words = [f"--redisInputQueue={job}", "--port=0", "--drainSeconds=0"]
    fronts = [Running(arguments.read(words, {})) for _ in range(2)]
    ports = [int(front.grpc.rpartition(":")[2]) for front in fronts]
    for front in fronts:
        front.stop()
    assert ports[0] != ports[1] and all(ports)


@pytest.mark.parametrize("interface", ["*", "::"])
def test_all_of_this_machine_means_the_same_for_http_and_grpc(serve, interface):
    http, rpc = (url.rpartition(":")[2] for url in serve(f"--interface={interface}").urls)
    for host in ("127.0.0.1", "[::1]", "localhost"):
        assert httpx.get(f"http://{host}:{http}/health/live").status_code == 200
        with grpc.insecure_channel(f"{host}:{rpc}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive", None, None)
            assert call(b"", timeout=60) == b"\x08\x01"
