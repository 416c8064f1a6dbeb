"""A program of somebody who has Triton's client: reads the answers of a decoupled model, by `start_stream`."""

import queue
import sys

import numpy as np
import tritonclient.grpc as triton

address, job = sys.argv[1:3]


def inputs_of(**values):
    made = []
    for name, value in values.items():
        tensor = triton.InferInput(name, [1], "INT64")
        tensor.set_data_from_numpy(np.array([value], np.int64))
        made.append(tensor)
    return made


def is_final(result):
    return result.get_response().parameters["triton_final_response"].bool_param


client = triton.InferenceServerClient(address)
assert client.get_model_config(job).config.model_transaction_policy.decoupled
answers = queue.SimpleQueue()
client.start_stream(lambda result, error: answers.put((result, error)))
for number in (5, 100):
    client.async_stream_infer(
        job, inputs_of(first=number, count=3), request_id=str(number), enable_empty_final_response=True
    )
found, ended = {}, set()
while len(ended) < 2:
    result, error = answers.get(timeout=60)
    assert error is None, error
    request = result.get_response().id
    if is_final(result):
        assert not result.get_response().outputs
        ended.add(request)
    else:
        found.setdefault(request, []).append(result.as_numpy("number").item())
assert found == {"5": [5, 6, 7], "100": [100, 101, 102]}, found
client.async_stream_infer(job, inputs_of(first=0, count=-1))
result, error = answers.get(timeout=60)
assert "count is -1" in error.message(), error
client.stop_stream()
print("all answered")
