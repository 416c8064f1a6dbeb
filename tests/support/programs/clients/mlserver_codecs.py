"""Requests as MLServer's codecs make them."""

import json
import sys
from http.client import HTTPConnection

import numpy as np
import pandas
from mlserver.codecs import (
    Base64Codec,
    NumpyCodec,
    NumpyRequestCodec,
    PandasCodec,
    StringCodec,
    StringRequestCodec,
)
from mlserver.types import InferenceRequest, InferenceResponse

url, _ = sys.argv[1:]
X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def infer(model, request):
    connection = HTTPConnection(url.removeprefix("http://"), timeout=30)
    connection.request("POST", f"/v2/models/{model}/infer", request.model_dump_json(exclude_none=True).encode())
    answer = connection.getresponse()
    content = json.load(answer)
    assert answer.status == 200, content
    return InferenceResponse(**content)


answer = infer("vector", InferenceRequest(inputs=[NumpyCodec.encode_input("x", X)]))
np.testing.assert_array_equal(NumpyCodec.decode_output(answer.outputs[0]), -X)
answer = infer("vector", NumpyRequestCodec.encode_request(X))
np.testing.assert_array_equal(NumpyRequestCodec.decode_response(answer), -X)
answer = infer("word", InferenceRequest(inputs=[StringCodec.encode_input("word", ["one", "two"])]))
assert StringCodec.decode_output(answer.outputs[0]) == ["ONE", "TWO"]
answer = infer("word", StringRequestCodec.encode_request(["one", "two"]))
assert StringRequestCodec.decode_response(answer) == ["ONE", "TWO"]
answer = infer("word", InferenceRequest(inputs=[Base64Codec.encode_input("word", [b"one", b"two"])]))
assert StringCodec.decode_output(answer.outputs[0]) == ["ONE", "TWO"]
ages = NumpyCodec.encode_input("age", np.array([[1], [np.nan]], np.float32))
answer = infer("table", InferenceRequest(inputs=[ages, StringCodec.encode_input("town", ["Ulm", "Essen"])]))
assert NumpyCodec.decode_output(answer.outputs[0]).ravel().tolist() == [3, 5]
# Its codec knows texts of pandas as objects alone.
towns = pandas.Series(["Ulm", "Essen"], dtype=object)
for use_bytes in (True, False):
    frame = PandasCodec.encode_request(pandas.DataFrame({"age": [1, 2.5], "town": towns}), use_bytes=use_bytes)
    assert PandasCodec.decode_response(infer("table", frame))["price"].tolist() == [3, 12.5]
print("all answered")
