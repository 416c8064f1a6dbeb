"""v2 over gRPC, of a model that answers in pieces: a decoupled model."""

import queue
import threading

import grpc
import numpy as np

from cluster_serving.frontend.proto import inference
from tests.support.fixtures.generating import generating
from tests.support.fixtures.grpc_calls import caller
from tests.support.fixtures.waiting import wait_until

SERVICE = "inference.GRPCInferenceService"
FINAL = "triton_final_response"

ENDLESS = """
    import time

    class Handler:
        inputs = {"first": "int64", "count": "int64"}

        def predict(self, batch):
            while True:
                yield {"number": batch["first"]}
                time.sleep(0.02)
    """


def request(job, first, count, name=""):
    message = inference.ModelInferRequest(model_name=job, id=name)
    for tensor, value in (("first", first), ("count", count)):
        message.inputs.add(name=tensor, datatype="INT64", shape=[1])
        message.raw_input_contents.append(np.int64(value).tobytes())
    return message


def stream(channel, messages):
    path = f"/{SERVICE}/ModelStreamInfer"
    call = channel.stream_stream(
        path, inference.ModelInferRequest.SerializeToString, inference.ModelStreamInferResponse.FromString
    )
    return call(messages, timeout=60)


def numbers(replies):
    return [np.frombuffer(reply.infer_response.raw_output_contents[0], "i8").item() for reply in replies]


def test_each_piece_is_a_response_and_an_empty_one_ends_them(redis_server, job, serve, tmp_path):
    with generating(redis_server.port, job, tmp_path), grpc.insecure_channel(serve().grpc) as channel:
        config = caller(channel, SERVICE)(
            "ModelConfig", inference.ModelConfigRequest(name=job), inference.ModelConfigResponse
        ).config
        assert config.model_transaction_policy.decoupled
        replies = list(
            stream(channel, iter([request(job, 5, 3, "a"), request(job, 50, 2, "b"), request(job, 0, -1, "c")]))
        )
        for name, expected in (("a", [5, 6, 7]), ("b", [50, 51])):
            mine = [reply for reply in replies if reply.infer_response.id == name]
            assert numbers(mine[:-1]) == expected
            assert [reply.infer_response.parameters[FINAL].bool_param for reply in mine] == [False] * len(expected) + [
                True
            ]
        (failed,) = [reply for reply in replies if reply.infer_response.id == "c"]
        assert "count is -1" in failed.error_message
        # Without a stream, the answer is whole.
        reply = caller(channel, SERVICE)("ModelInfer", request(job, 5, 3), inference.ModelInferResponse)
        assert np.frombuffer(reply.raw_output_contents[0], "i8").tolist() == [5, 6, 7]


def test_the_end_of_a_stream_stops_its_requests(redis_server, db, job, serve, tmp_path):
    with generating(redis_server.port, job, tmp_path, ENDLESS), grpc.insecure_channel(serve().grpc) as channel:
        messages = queue.SimpleQueue()
        messages.put(request(job, 1, 1))
        replies = stream(channel, iter(messages.get, None))
        assert numbers([next(replies) for _ in range(3)]) == [1, 1, 1]
        replies.cancel()
        messages.put(None)
        wait_until(lambda: not db.xlen(job))
        assert threading.active_count() < 50
