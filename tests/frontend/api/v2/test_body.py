"""Bodies of the v2 protocol: what is written is read again, and what is hostile is refused with a reason."""

import base64
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cluster_serving.frontend.api.v2 import body as v2_body
from cluster_serving.frontend.api.v2 import datatypes
from cluster_serving.frontend.api.v2.request import InferRequest, InferResponse
from cluster_serving.protocol.errors import InvalidInput

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
NUMBERS = st.sampled_from(sorted(datatypes.DTYPES)).flatmap(
    lambda name: st.tuples(st.just(name), hnp.arrays(datatypes.DTYPES[name], SHAPES))
)
BYTES = hnp.arrays(object, SHAPES, elements=st.binary(max_size=9)).map(lambda array: ("BYTES", array))


def body_of(*tensors, **more):
    """A request in JSON, with the binary data of the tensors that have some behind it."""
    parts = [data for _, data in tensors if data is not None]
    header = json.dumps({"inputs": [tensor for tensor, _ in tensors], **more}).encode()
    return b"".join([header, *parts]), str(len(header)) if parts else None


def read(body, header_length=None):
    return v2_body.decode(body, v2_body.json_length(body, header_length))


def tensor_of(name, datatype, array, binary):
    """The JSON of a tensor, and its binary data if it has some."""
    tensor = {"name": name, "datatype": datatype, "shape": list(array.shape)}
    if not binary:
        return tensor | {"data": array.tolist()}, None
    raw = datatypes.to_raw(array, datatype)
    return tensor | {"parameters": {"binary_data_size": len(raw)}}, raw


@given(st.lists(NUMBERS | BYTES, min_size=1, max_size=3))
def test_binary_tensors_of_every_datatype_and_shape_come_through(tensors):
    body = body_of(*(tensor_of(str(index), *tensor, True) for index, tensor in enumerate(tensors)))
    decoded = read(*body).inputs
    for index, (datatype, array) in enumerate(tensors):
        assert decoded[str(index)].shape == array.shape
        assert datatypes.to_raw(decoded[str(index)], datatype) == datatypes.to_raw(array, datatype)


@given(NUMBERS, st.booleans())
def test_json_numbers_of_every_datatype_and_shape_come_through(tensor, flat):
    datatype, array = tensor
    made, _ = tensor_of("x", datatype, array, False)
    data = [None if isinstance(item, float) and not np.isfinite(item) else item for item in array.ravel().tolist()]
    expected = np.where(np.isfinite(array), array, np.nan) if array.dtype.kind == "f" else array
    if flat:
        made["data"] = data
    elif array.dtype.kind == "f" or not array.ndim:
        return
    decoded = read(json.dumps({"inputs": [made]}).encode()).inputs["x"]
    assert decoded.dtype == array.dtype
    np.testing.assert_array_equal(decoded, expected)


@given(NUMBERS, st.booleans())
def test_responses_are_of_the_form_that_is_asked_for(tensor, binary):
    datatype, array = tensor
    response = InferResponse("m", "1", "id-1", {"y": array})
    request = InferRequest({}, parameters={"binary_data_output": binary})
    body, length = v2_body.encode(response, v2_body.binary_outputs(request, response.outputs))
    written = json.loads(body[:length])
    output = written["outputs"][0]
    assert (written["id"], output["datatype"], output["shape"]) == ("id-1", datatype, list(array.shape))
    if binary:
        assert body[length:] == array.tobytes()
        assert output["parameters"] == {"binary_data_size": array.nbytes}
    else:
        numbers = np.array(output["data"], array.dtype).reshape(array.shape)
        # Not for integers: beside NaN they would become floating point, which does not hold all of them.
        expected = np.where(np.isfinite(array), array, np.nan).astype(array.dtype) if array.dtype.kind == "f" else array
        np.testing.assert_array_equal(numbers, expected)


def test_text_and_base64_fill_tensors_of_bytes():
    tensor = {"name": "x", "datatype": "BYTES", "shape": [2, 1], "data": [["ä"], ["b"]]}
    encoded = {
        "name": "y",
        "datatype": "BYTES",
        "shape": [1],
        "parameters": {"content_type": "base64"},
        "data": [base64.b64encode(b"\xff\x00").decode()],
    }
    inputs = read(json.dumps({"inputs": [tensor, encoded]}).encode()).inputs
    assert inputs["x"].tolist() == [["ä".encode()], [b"b"]]
    assert inputs["y"].tolist() == [b"\xff\x00"]


X = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}
RAW = {"name": "x", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}
WORDS = {"name": "x", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 10}}


@pytest.mark.parametrize(
    ("tensor", "binary", "message"),
    [
        (X | {"datatype": "BF16"}, b"", "'x' is BF16, for which only binary data"),
        (X | {"datatype": "FLOAT"}, b"", "expected one of BOOL, INT8"),
        (X | {"datatype": ["FP32"]}, b"", "expected one of"),
        (X | {"shape": [3]}, b"", "has 2 elements; FP32 of shape .3. needs 3"),
        (X | {"shape": [-1, -2]}, b"", "shape"),
        (X | {"shape": [True, 2]}, b"", "shape"),
        (X | {"shape": [1 << 62, 4]}, b"", "shape"),
        (X | {"shape": [0, 1 << 61], "data": []}, b"", "no tensor can have"),
        (RAW | {"shape": [1 << 31, 0, 1 << 31], "parameters": {"binary_data_size": 0}}, b"", "no tensor can have"),
        (X | {"shape": "2"}, b"", "has 2 elements|shape"),
        (X | {"shape": None}, b"", "shape"),
        (X | {"data": [[1, 2]]}, b"", "data of shape"),
        (X | {"data": [[1], [2, 3]]}, b"", r"'x' is not a tensor of FP32: x\[1\] has length 2, a list before it 1$"),
        (X | {"data": [1, "two"]}, b"", r"'x': x\[1\] is 'two'; expected a number$"),
        (X | {"data": [[1, {}]]}, b"", r"x\[0\]\[1\] is {}; expected a number$"),
        (X | {"data": [[], [2]]}, b"", r"x\[1\] has length 1, a list before it 0$"),
        (X | {"data": [1, [2]]}, b"", r"x\[1\] is \[2\]; expected a number$"),
        (X | {"data": [[1], 2]}, b"", r"x\[1\] is 2; expected a list of length 1$"),
        (X | {"data": json.loads("[" * 40 + "1" + "]" * 40)}, b"", "it is nested 40 lists deep; at most 32 are taken$"),
        (X | {"data": "12"}, b"", "neither a list of data"),
        (
            X | {"datatype": "FP16", "data": [1e9, 0]},
            b"",
            r"x\[0\] is 1000000000.0; .* at most 6.55e\+04 \(float16\)$",
        ),
        (X | {"data": [1e39, 0]}, b"", r"x\[0\] is 1e\+39; expected a number of at most 3.4e\+38 \(float32\)$"),
        (
            X | {"datatype": "INT8", "data": [1, 300]},
            b"",
            r"x\[1\] is 300; expected .* from -128 to 127 \(int8\)$",
        ),
        (
            X | {"datatype": "UINT64", "data": [-1, 1 << 63]},
            b"",
            r"x\[0\] is -1; expected .* from 0 to \d+ \(uint64\)$",
        ),
        (X | {"datatype": "INT64", "data": [1 << 63, 1 << 70]}, b"", r"x\[0\] is 92.*; expected a whole number"),
        (
            X | {"datatype": "INT32", "data": [1, 1.5]},
            b"",
            r"'x': x\[1\] is 1.5; expected a whole number of at most 64 bits, in digits$",
        ),
        (
            X | {"datatype": "INT32", "data": [1, None]},
            b"",
            r"x\[1\] is null; expected a whole number of at most 64 bits, in digits$",
        ),
        (
            X | {"datatype": "INT8", "data": [300, 1]},
            b"",
            r"x\[0\] is 300; expected .* from -128 to 127 \(int8\)$",
        ),
        (
            X | {"datatype": "INT64", "data": [-float(1 << 63), 1]},
            b"",
            r"x\[0\] is -9.22.*e\+18; expected a whole number",
        ),
        (X | {"datatype": "BOOL", "data": [True, 2]}, b"", r"'x': x\[1\] is 2; expected true or false$"),
        (X | {"datatype": "BYTES", "data": [1, 2]}, b"", "other kinds than strings"),
        (X | {"name": ""}, b"", "no name"),
        (X | {"parameters": {"shared_memory_region": "r"}}, b"", "shared memory"),
        (X | {"parameters": [1]}, b"", "not a JSON object"),
        (RAW, b"1234567", "binary_data_size 8; 7 bytes are left"),
        (RAW, b"123456789", "1 bytes of binary data that belong to no input"),
        (RAW | {"shape": [3]}, b"12345678", "has 8 bytes; FP32 of shape .3. needs 12"),
        (RAW | {"shape": [1 << 40, 1 << 40]}, b"12345678", "needs"),
        (RAW | {"parameters": {"binary_data_size": -8}}, b"12345678", "binary_data_size -8"),
        (RAW | {"parameters": {"binary_data_size": 1e99}}, b"12345678", "binary_data_size"),
        (RAW | {"parameters": {"binary_data_size": "8"}}, b"12345678", "binary_data_size"),
        (WORDS, b"\x01\0\0\0a\xff\xff\xff\xffb", "element 1 reaches beyond"),
        (WORDS | {"shape": [1 << 21]}, b"\x01\0\0\0a\x01\0\0\0b", "at most 1048576 are taken"),
        (WORDS | {"shape": [3]}, b"\x01\0\0\0a\x01\0\0\0b", "has 2 elements"),
        (WORDS | {"parameters": {"binary_data_size": 8}}, b"\x01\0\0\0a\x01\0\0", "element 1 reaches beyond"),
    ],
)
def test_what_is_wrong_with_a_tensor_is_said(tensor, binary, message):
    header = json.dumps({"inputs": [tensor]}).encode()
    with pytest.raises(InvalidInput, match=message):
        read(header + binary, str(len(header)))


@pytest.mark.parametrize(
    ("datatype", "data", "expected"),
    [
        ("INT64", [1.0, 2**53 + 1], [1, 2**53 + 1]),
        ("UINT64", [1, 2**64 - 1], [1, 2**64 - 1]),
        ("INT8", [True, False], [1, 0]),
        ("FP32", [True, 2.5], [1, 2.5]),
        ("FP64", [None, 2**53 + 1], [np.nan, 2**53]),
        ("BOOL", [[True], [False]], [[True], [False]]),
        ("INT32", [[], []], [[], []]),
    ],
)
def test_numbers_of_json_are_read_as_they_are_meant(datatype, data, expected):
    array = datatypes.from_numbers("x", datatype, np.shape(data), data)
    np.testing.assert_array_equal(array, np.array(expected, datatypes.DTYPES[datatype]), strict=True)


@pytest.mark.parametrize("datatype", ["FP32", "INT8", "BOOL"])
def test_a_long_text_among_numbers_costs_no_more_than_itself(datatype):
    tracemalloc.start()
    with pytest.raises(InvalidInput, match="xxx.*; expected"):
        datatypes.from_numbers("x", datatype, (1001,), ["x" * 100_000, *[""] * 1000])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("body", "length", "message"),
    [
        (b"", None, "is empty"),
        (b"[1]", None, "a list .*; expected a JSON object"),
        (b"[" * 100_000, None, "not JSON"),
        (b'{"inputs": []}', None, "'inputs' is missing"),
        (b'{"inputs": {"name": "x"}}', None, "'inputs' is missing"),
        (b'{"inputs": [1]}', None, r"inputs\[0\] is not"),
        (json.dumps({"inputs": [X, X]}).encode(), None, "two inputs 'x'"),
        (json.dumps({"inputs": [X], "id": 5}).encode(), None, "id is 5"),
        (json.dumps({"inputs": [X], "parameters": 5}).encode(), None, "parameters is not"),
        (json.dumps({"inputs": [X], "outputs": 5}).encode(), None, "'outputs' is missing or not"),
        (
            json.dumps({"inputs": [X], "outputs": [{"name": "y", "parameters": {"classification": 0}}]}).encode(),
            None,
            "1",
        ),
        (
            json.dumps({"inputs": [X], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}).encode(),
            None,
            "true",
        ),
        (json.dumps({"inputs": [X]}).encode(), "1000000", "expected a number up to"),
        (json.dumps({"inputs": [X]}).encode(), "-1", "expected a number"),
        (json.dumps({"inputs": [X]}).encode(), "9" * 5000, "expected a number"),
        (json.dumps({"inputs": [X]}).encode(), "٣", "expected a number"),
    ],
)
def test_what_is_wrong_with_a_body_is_said(body, length, message):
    with pytest.raises(InvalidInput, match=message):
        read(body, length)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.just("x") | JSON,
            "datatype": st.sampled_from([*datatypes.DTYPES, "BYTES"]) | JSON,
            "shape": st.lists(st.integers(-1, 3), max_size=3) | JSON,
            "data": st.lists(st.integers(-9, 300) | JSON, max_size=9) | JSON,
            "parameters": st.dictionaries(
                st.sampled_from(["binary_data_size", "content_type"]), st.integers(-9, 99) | JSON
            )
            | JSON,
        },
    ),
    st.binary(max_size=64),
    st.none() | st.text(max_size=4) | st.integers(-9, 300).map(str),
)
def test_hostile_bodies_are_read_or_refused(tensor, binary, length):
    header = json.dumps({"inputs": [tensor]}).encode()
    for given_length in (str(len(header)), length):
        try:
            read(header + binary, given_length)
        except InvalidInput as error:
            assert str(error)
