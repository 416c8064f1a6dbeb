"""Calls of Triton's clients over HTTP and gRPC, and of perf_analyzer: a batch of single values is [n, 1]."""

import sys

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

url, grpc = sys.argv[1:]
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
WORDS = np.array([["one"], ["two"]], object)


def tensor(module, name, array):
    made = module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    made.set_data_from_numpy(array)
    return made


for module, address in ((triton_http, url.removeprefix("http://")), (triton_grpc, grpc)):
    client = module.InferenceServerClient(address)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("vector")
    client.get_server_metadata()
    client.get_model_metadata("vector")
    client.get_model_config("vector")
    client.get_model_repository_index()
    client.get_inference_statistics("vector")
    answer = client.infer("vector", [tensor(module, "x", X)], outputs=[module.InferRequestedOutput("y")])
    np.testing.assert_array_equal(answer.as_numpy("y"), -X)
    for words in (WORDS, WORDS[:, 0]):
        answer = client.infer("word", [tensor(module, "word", words)])
        assert answer.as_numpy("loud").tolist() == [b"ONE", b"TWO"]
    try:
        client.infer("vector", [tensor(module, "y", X)])
    except InferenceServerException as error:
        assert "the request has the inputs 'y'; the model expects x" in str(error)
    else:
        raise AssertionError("an unknown input was taken")

body, size = triton_http.InferenceServerClient.generate_request_body([tensor(triton_http, "x", X)])
with triton_http.InferenceServerClient(url.removeprefix("http://"), concurrency=2) as client:
    waiting = [client.async_infer("vector", [tensor(triton_http, "x", X)]) for _ in range(4)]
    for one in waiting:
        np.testing.assert_array_equal(one.get_result().as_numpy("y"), -X)
    for compression in ("gzip", "deflate"):
        answer = client.infer("vector", [tensor(triton_http, "x", X)], request_compression_algorithm=compression)
        np.testing.assert_array_equal(answer.as_numpy("y"), -X)
print("all answered")
