"""A program of somebody who has Triton's client, run in an environment of its own: asks an echoing job over gRPC."""

import asyncio
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
NUMBERS = ["bool", "float16", "float32", "float64", *INTEGERS]

address, job = sys.argv[1:3]


def inputs_of(x):
    made = []
    words = np.array([[f"ä{number}".encode()] for number in range(len(x))], object)
    for name, array in {"x": x, "s": words}.items():
        tensor = triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        made.append(tensor)
    return made, words


def check(result, x, words):
    np.testing.assert_array_equal(result.as_numpy("x"), x)
    assert result.as_numpy("x").dtype == x.dtype
    assert result.as_numpy("s").tolist() == words.tolist()


def refused(call, status, message):
    try:
        call()
    except InferenceServerException as error:
        assert (error.status(), message in error.message()) == (f"StatusCode.{status}", True), error
    else:
        raise AssertionError(f"not refused: {message}")


def sync():
    client = triton.InferenceServerClient(address)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(job)
    metadata = client.get_model_metadata(job, as_json=True)
    assert metadata["inputs"][1] == {"name": "s", "datatype": "BYTES", "shape": ["-1", "1"]}, metadata
    config = client.get_model_config(job).config
    assert (config.max_batch_size, config.input[1].data_type, list(config.input[1].dims)) == (8, 13, [1]), config
    assert job in [model.name for model in client.get_model_repository_index().models]
    assert client.get_server_metadata().name == "cluster-serving"
    for dtype in NUMBERS:
        for count in (1, 5):
            x = np.arange(3 * count).reshape(count, 3).astype(dtype)
            inputs, words = inputs_of(x)
            result = client.infer(job, inputs, request_id="id 7", client_timeout=60)
            assert result.get_response().id == "id 7"
            check(result, x, words)
    inputs, words = inputs_of(np.array([[0.1, 0.7, 0.2]]))
    chosen = client.infer(job, inputs, outputs=[triton.InferRequestedOutput("x", class_count=2)])
    assert chosen.as_numpy("x").tolist() == [[b"0.7:1", b"0.2:2"]]
    assert chosen.as_numpy("s") is None
    check(client.infer(job, inputs, compression_algorithm="gzip"), np.array([[0.1, 0.7, 0.2]]), words)
    refused(lambda: client.infer("another", inputs), "NOT_FOUND", "no model 'another'")
    refused(lambda: client.infer(job, inputs, model_version="9"), "NOT_FOUND", "version '9'")
    refused(lambda: client.infer(job, inputs[:1]), "INVALID_ARGUMENT", "has the inputs 'x'; the model expects")
    refused(lambda: client.infer(job, inputs, timeout=1), "DEADLINE_EXCEEDED", "no result")
    assert not client.is_model_ready("another") and not client.is_model_ready(job, "9")
    for call in (lambda: client.load_model(job), lambda: client.unload_model(job)):
        refused(call, "PERMISSION_DENIED", "set modelControl: true in its config.yaml")
    for call in (
        client.get_log_settings,
        client.get_trace_settings,
        client.get_system_shared_memory_status,
        client.unregister_cuda_shared_memory,
    ):
        refused(call, "UNIMPLEMENTED", "is not supported here")
    refused(lambda: client.get_model_metadata("another"), "NOT_FOUND", "no model")
    stats = client.get_inference_statistics(job, as_json=True)["model_stats"][0]
    assert stats["name"] == job and {"queue", "compute_infer"} <= stats["inference_stats"].keys(), stats
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for number in range(50):
        client.async_stream_infer(job, inputs_of(np.full((2, 3), number))[0], request_id=str(number))
    for number in range(50):
        result, error = answers.get(timeout=60)
        assert error is None, error
        assert result.get_response().id == str(number)
        np.testing.assert_array_equal(result.as_numpy("x"), np.full((2, 3), number))
    for number in range(5):
        inputs = inputs_of(np.full((2, 3), number))[0][: 2 - number % 2]
        client.async_stream_infer(job, inputs, request_id=str(number), enable_empty_final_response=True)
    for number in range(5):
        result, error = answers.get(timeout=60)
        if number % 2:
            assert "has the inputs 'x'" in error.message()
            continue
        np.testing.assert_array_equal(result.as_numpy("x"), np.full((2, 3), number))
        assert not result.get_response().parameters["triton_final_response"].bool_param
        final = answers.get(timeout=60)[0].get_response()
        assert (final.id, len(final.outputs)) == (str(number), 0)
        assert final.parameters["triton_final_response"].bool_param
    client.stop_stream()
    client.close()


async def asynchronous():
    async with triton_aio.InferenceServerClient(address) as client:
        assert await client.is_server_ready()
        assert (await client.get_model_metadata(job)).platform == "Echo"

        async def one(number):
            x = np.full((1 + number % 3, 3), number)
            inputs, words = inputs_of(x)
            check(await client.infer(job, inputs), x, words)

        await asyncio.gather(*(one(number) for number in range(200)))


sync()
asyncio.run(asynchronous())
print("all answered")
