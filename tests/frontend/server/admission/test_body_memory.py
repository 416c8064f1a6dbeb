"""Memory for the bodies of all requests, over HTTP and gRPC."""

import gzip
import json
import threading
from contextlib import contextmanager

import grpc
import httpx
import pytest

from cluster_serving.frontend.proto import inference
from tests.support.fixtures.front_end import connect
from tests.support.fixtures.grpc_calls import caller, raw
from tests.support.fixtures.stalling import StallingProxy
from tests.support.fixtures.waiting import wait_until

OPTIONS = ["--maxBodyBytes=1000000", "--maxBodyMemory=1500000"]
SMALL = json.dumps({"instances": [{"x": [1, 2]}]})
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def request_of(job, count):
    """A request of `count` float32."""
    request = raw([bytes(4 * count)], (1, count))
    request.model_name = job
    return request


@contextmanager
def held(front):
    """A request that has sent 900,000 bytes of its body, and then sends the rest."""
    body = SMALL.encode() + b" " * (900_000 - len(SMALL))
    with connect(front.url) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nhost: a\r\ncontent-length: 900001\r\n\r\n" + body)
        wait_until(lambda: front.front.admission.bodies.used >= 900_000)
        yield
        connection.sendall(b" ")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    wait_until(lambda: front.front.admission.bodies.used == 0)


@pytest.mark.usefixtures("echo", "vectors")
def test_bodies_beyond_the_memory_for_all_are_503_and_others_go_on(serve, job):
    front = serve(*OPTIONS)
    with httpx.Client(base_url=front.url, timeout=30) as ask, grpc.insecure_channel(front.grpc) as channel:
        call = caller(channel, "inference.GRPCInferenceService")
        infer = ("ModelInfer", request_of(job, 200_000), inference.ModelInferResponse)
        with held(front):
            refused = ask.post("/predict", content=b" " * 900_000)
            assert (refused.status_code, refused.json()["code"]) == (503, "OVERLOADED")
            assert "maxBodyMemory" in refused.json()["error"]
            assert refused.headers["retry-after"]
            with pytest.raises(grpc.RpcError, match="maxBodyMemory") as raised:
                call(*infer)
            assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
            assert ask.post("/predict", content=SMALL).status_code == 200
        assert call(*infer).model_name == job


@pytest.mark.usefixtures("echo", "vectors")
def test_a_stream_waits_for_its_own_answers_if_its_messages_have_no_room(serve, job):
    front = serve(*OPTIONS)
    messages = [request_of(job, 200_000).SerializeToString() for _ in range(5)]
    with grpc.insecure_channel(front.grpc) as channel:
        replies = channel.stream_stream(STREAM, None, inference.ModelStreamInferResponse.FromString)(iter(messages))
        assert [reply.error_message for reply in replies] == [""] * 5
    wait_until(lambda: front.front.admission.bodies.used == 0)


@pytest.mark.usefixtures("echo", "vectors")
def test_a_slow_message_counts_as_the_largest_and_has_a_limited_time(serve, job):
    front = serve(*OPTIONS, "--bodyTimeout=2.5")
    codes = []
    with StallingProxy(front.grpc, 100_000) as proxy:

        def ask():
            # A connection of its own.
            options = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(proxy.address, options) as channel, pytest.raises(grpc.RpcError) as raised:
                call = caller(channel, "inference.GRPCInferenceService")
                call("ModelInfer", request_of(job, 200_000), inference.ModelInferResponse)
            codes.append((raised.value.code(), raised.value.details().rpartition("(")[2]))

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: front.front.admission.bodies.used == 1_000_000)
        for thread in threads:
            thread.join()
    assert sorted(codes, key=str) == [
        (grpc.StatusCode.DEADLINE_EXCEEDED, "bodyTimeout)"),
        (grpc.StatusCode.UNAVAILABLE, "maxBodyMemory)"),
    ]


@pytest.mark.usefixtures("echo", "vectors")
def test_a_compressed_body_counts_with_its_true_size(serve):
    front = serve(*OPTIONS)
    with httpx.Client(base_url=front.url, timeout=30) as ask, held(front):
        refused = ask.post(
            "/predict", content=gzip.compress(SMALL.encode() + b" " * 900_000), headers={"content-encoding": "gzip"}
        )
        assert (refused.status_code, refused.json()["code"]) == (503, "OVERLOADED")
