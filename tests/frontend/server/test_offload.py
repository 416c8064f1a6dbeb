"""Work on large bodies leaves the event loop free for other requests."""

import asyncio
import functools
import gzip
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import numpy as np
import orjson
import pytest
import tritonclient.http as triton

from cluster_serving.frontend.api import json_text
from cluster_serving.frontend.api.original import instances, predictions
from cluster_serving.frontend.api.v2 import batch as v2_batch
from cluster_serving.frontend.api.v2 import body as v2_body
from cluster_serving.frontend.api.v2 import datatypes
from cluster_serving.frontend.errors import Overloaded
from cluster_serving.frontend.proto import inference
from cluster_serving.frontend.server.offload import LARGE, Offload
from cluster_serving.protocol import results
from cluster_serving.protocol.errors import InvalidInput
from tests.support.fixtures.waiting import wait_until
from tests.support.payloads import worst

VALUES = 400_000


def fail(message):
    raise InvalidInput(message)


def test_only_what_is_large_is_done_elsewhere():
    async def main():
        offload = Offload()
        assert await offload.run(os.getpid, holding_gil=LARGE - 1) == os.getpid()
        assert await offload.run(os.getpid, holding_gil=LARGE) != os.getpid()
        assert await offload.run(threading.get_ident, sharing_gil=LARGE - 1) == threading.get_ident()
        assert await offload.run(threading.get_ident, sharing_gil=LARGE) != threading.get_ident()
        with pytest.raises(InvalidInput, match="as if it were here"):
            await offload.run(functools.partial(fail, "as if it were here"), holding_gil=LARGE)
        await offload.close()

    asyncio.run(main())


def test_closing_does_not_wait_for_work():
    async def main():
        offload = Offload()
        work = asyncio.create_task(offload.run(functools.partial(time.sleep, 1000), holding_gil=LARGE))
        while not multiprocessing.active_children():
            await asyncio.sleep(0.05)
        await asyncio.wait_for(offload.close(), 30)
        with pytest.raises(Overloaded):
            await asyncio.wait_for(work, 30)

    asyncio.run(main())


def test_a_process_that_is_killed_is_an_error_of_its_request_alone():
    async def main():
        offload = Offload()
        with pytest.raises(Overloaded):
            await offload.run(functools.partial(os._exit, 1), holding_gil=LARGE)
        assert await offload.run(functools.partial(len, "abc"), holding_gil=LARGE) == 3
        await offload.close()

    asyncio.run(main())


def test_the_processes_of_a_front_end_that_is_killed_end():
    program = f"""
import asyncio, os
from {Offload.__module__} import LARGE, Offload
async def main():
    print(await Offload().run(os.getpid, holding_gil=LARGE), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert int(process.stdout.readline()) != process.pid
        process.kill()
        # Its end comes when the last process that may write has ended.
        assert process.communicate(timeout=60) == ("", None)


@pytest.fixture
def front(serve, report, echo):
    report(("x", "float32", (None, None)))
    return serve("--requestTimeout=120000", "--probeTimeout=60")


@pytest.fixture
def vector():
    return np.arange(VALUES, dtype="f4") / 7


@pytest.fixture
def body(vector):
    made = orjson.dumps({"instances": [{"x": vector}]}, option=orjson.OPT_SERIALIZE_NUMPY)
    assert len(made) > LARGE
    return made


def v2_request(vector):
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, VALUES], "data": vector}]}


def test_others_are_answered_while_a_large_body_is_parsed(front, body, vector):
    with httpx.Client(base_url=front.url, timeout=120) as client, ThreadPoolExecutor(1) as aside:
        first = client.post("/predict", content=body)
        workers = multiprocessing.active_children()
        assert workers
        for worker in workers:
            os.kill(worker.pid, signal.SIGSTOP)
        try:
            large = aside.submit(client.post, "/predict", content=body)
            wait_until(lambda: front.front.metrics.open_requests == 1)
            small = client.post("/predict", json={"instances": [{"x": [1, 2]}]})
            assert small.json() == {"predictions": [{"value": [1.0, 2.0]}]}
            assert not large.done()
        finally:
            for worker in workers:
                os.kill(worker.pid, signal.SIGCONT)
        assert large.result().content == first.content
    np.testing.assert_array_equal(np.array(first.json()["predictions"][0]["value"], "f4"), vector)


@pytest.fixture
def event_loop_only(monkeypatch, front):
    """Makes whatever works on costly JSON or on single elements fail in the event loop's thread."""
    (loop_thread,) = [thread for thread in threading.enumerate() if thread is front._thread]

    def is_large(*arguments):
        return True

    def guard(module, name, is_large=is_large):
        function = getattr(module, name)

        @functools.wraps(function)
        def guarded(*arguments, **options):
            if is_large(*arguments[:2]):
                assert threading.current_thread() is not loop_thread, f"{name} ran in the event loop"
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, guarded)

    guard(json_text, "loads", lambda text, *_: json_text.reading_cost(text) >= LARGE)
    guard(instances, "to_records")
    for name in ("decode", "_numbers"):
        guard(v2_body, name)
    guard(results, "decode_outputs", lambda fields: results.cost(fields) >= LARGE)
    guard(
        predictions,
        "written",
        lambda outputs, form: json_text.writing_cost([outputs], as_texts=form != "json") >= LARGE,
    )
    guard(v2_batch, "_strings")
    for name in ("_split", "to_raw"):
        guard(datatypes, name)


@pytest.mark.usefixtures("event_loop_only")
def test_no_protocol_works_on_large_bodies_in_the_event_loop(front, job, body, vector):
    def vector_of(value):
        return np.array(value, "f4").ravel()

    with httpx.Client(base_url=front.url, timeout=120) as client:
        (prediction,) = client.post("/predict", content=body).json()["predictions"]
        np.testing.assert_array_equal(vector_of(prediction["value"]), vector)

        place = client.post("/v1/requests", content=body).headers["location"]
        (prediction,) = client.get(f"{place}?wait=60").json()["predictions"]
        np.testing.assert_array_equal(vector_of(prediction["value"]), vector)
        event = client.get(f"{place}/events").text.splitlines()[1]
        assert orjson.loads(event.removeprefix("data: "))["prediction"] == prediction

        v2 = orjson.dumps(v2_request(vector), option=orjson.OPT_SERIALIZE_NUMPY)
        for content, headers in ((v2, {}), (gzip.compress(v2), {"content-encoding": "gzip"})):
            answer = client.post(f"/v2/models/{job}/infer", content=content, headers=headers).json()
            np.testing.assert_array_equal(vector_of(answer["outputs"][0]["data"]), vector)


@pytest.mark.usefixtures("event_loop_only")
def test_texts_in_binary_form_are_read_apart_from_the_event_loop(front, report, job):
    report(("s", "str", (None, None)))
    words = np.array([[b"a word"] * (LARGE // 8)], object)
    wait_until(lambda: httpx.get(f"{front.url}/v2/models/{job}").json()["inputs"][0]["name"] == "s")
    with triton.InferenceServerClient(front.url.removeprefix("http://"), network_timeout=120) as client:
        tensor = triton.InferInput("s", list(words.shape), "BYTES")
        tensor.set_data_from_numpy(words)
        assert (client.infer(job, [tensor]).as_numpy("s") == words).all()
    raw = datatypes.to_raw(words, "BYTES")
    request = inference.ModelInferRequest(model_name=job, raw_input_contents=[raw])
    request.inputs.add(name="s", datatype="BYTES", shape=words.shape)
    with grpc.insecure_channel(front.grpc, [("grpc.max_receive_message_length", -1)]) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", None, None)
        answer = inference.ModelInferResponse.FromString(call(request.SerializeToString(), timeout=60))
    assert list(answer.raw_output_contents) == [raw]


BODIES = dict(worst.predict(900_000))


@pytest.mark.parametrize("name", BODIES)
def test_a_body_costs_more_than_its_bytes_if_it_takes_longer(name):
    text = b"x" * len(BODIES[name])
    factor = json_text.reading_cost(BODIES[name]) / json_text.reading_cost(text)
    assert factor > 2 if name != "a text in base64" else factor < 1.1


def test_requests_of_a_few_numbers_or_an_image_are_read_in_the_event_loop():
    vectors = orjson.dumps({"instances": [{"x": [0.12345678] * 64}] * 100})
    image = orjson.dumps({"instances": [{"x": "A" * 500_000}]})
    assert max(map(json_text.reading_cost, (vectors, image))) < LARGE


@pytest.mark.usefixtures("event_loop_only")
def test_the_worst_bodies_are_read_apart_from_the_event_loop(front, job):
    with httpx.Client(base_url=front.url, timeout=120) as client:
        for name, body in BODIES.items():
            if json_text.reading_cost(body) >= LARGE:
                assert client.post("/predict", content=body).status_code in (200, 400, 413), name
        for name, body, length in worst.infer(900_000):
            if v2_body.cost(body, length) >= LARGE:
                headers = {v2_body.HEADER_LENGTH: str(length)}
                answer = client.post(f"/v2/models/{job}/infer", content=body, headers=headers)
                assert answer.status_code in (200, 400, 413), name


@pytest.mark.usefixtures("event_loop_only")
def test_the_worst_messages_are_read_apart_from_the_event_loop(front, job):
    with grpc.insecure_channel(front.grpc, [("grpc.max_receive_message_length", -1)]) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", None, None)
        for name, message in worst.messages(900_000):
            message.model_name = job
            try:
                call(message.SerializeToString(), timeout=60)
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, name
