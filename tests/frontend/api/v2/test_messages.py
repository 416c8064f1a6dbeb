"""Messages of v2 over gRPC, read and written without a server."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.frontend.api.v2 import messages as v2_messages
from cluster_serving.frontend.api.v2.datatypes import DTYPES
from cluster_serving.frontend.api.v2.request import InferResponse
from cluster_serving.frontend.proto import inference
from cluster_serving.frontend.server.offload import LARGE
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge

NO_MESSAGE = b"\xff\xff\xff"


@pytest.mark.parametrize("size", [200, 20_000])
def test_an_envelope_has_all_but_the_contents_and_large_tensors(size):
    request = inference.ModelInferRequest(model_name="m", model_version="2", id="7", raw_input_contents=[b"a" * 300])
    request.parameters["timeout"].int64_param = 5
    request.inputs.add(name="x" * size, datatype="FP32", shape=[1])
    request.outputs.add(name="y")
    message, cost = v2_messages.envelope(request.SerializeToString())
    assert cost > size
    assert list(message.raw_input_contents) == [b""]
    request.raw_input_contents[0] = b""
    if size > 200:
        request.ClearField("inputs")
        request.ClearField("outputs")
    assert message == request


def test_texts_in_raw_contents_cost_more_than_numbers():
    costs = {}
    for datatype in ("BYTES", "UINT8"):
        request = inference.ModelInferRequest(raw_input_contents=[bytes(80_000)])
        request.inputs.add(name="x", datatype=datatype, shape=[20_000])
        costs[datatype] = v2_messages.envelope(request.SerializeToString())[1]
    assert costs["BYTES"] > LARGE > 100 * costs["UINT8"]


@pytest.mark.parametrize("text", [NO_MESSAGE, b"\x0a\x05m", b"\x0a", b"\x08\x01", b"\x0a\x01\xff"])
def test_an_envelope_that_is_none_is_refused(text):
    with pytest.raises(InvalidInput, match="is not a ModelInferRequest"):
        v2_messages.envelope(text)
    with pytest.raises(RequestTooLarge):
        v2_messages.envelope(b"\x2a\x00" * 5000)


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


def test_text_travels_as_bytes():
    texts = np.array(["ä", "b"], object)
    reply = v2_messages.encode(InferResponse("m", "1", "", {"y": texts}), raw=False)
    assert list(reply.outputs[0].contents.bytes_contents) == ["ä".encode(), b"b"]
    half = v2_messages.encode(InferResponse("m", "1", "", {"y": texts, "h": np.zeros(2, "f2")}), raw=False)
    assert list(half.raw_output_contents) == [b"\x02\0\0\0\xc3\xa4\x01\0\0\0b", b"\0\0\0\0"]
