"""The JSON that the original's HTTP front end forwards."""

import base64
import json
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Image, SparseTensor
from cluster_serving.protocol.original import json as original_json
from cluster_serving.protocol.slots import TensorSpec


def decode(**instance):
    return original_json.decode_request(json.dumps({"instances": [instance, {"of": "another entry"}]}).encode())


def sparse(**changes):
    whole = {"shape": [100, 10], "data": [0.5, 1.5, 2.5], "indices": [[1, 2, 3], [4, 5, 6]]}
    return decode(sp=whole | changes)["sp"]


def test_every_kind_of_value_of_the_guides_is_read_in_order():
    inputs = decode(
        number=12345,
        scalar=3.25,
        vector=[7756, 9549],
        cube=[[[0.2, 0.3], [0.5, 0.6]]],
        picture=base64.b64encode(b"not really a JPEG").decode(),
        words=["come", "on", "united"],
        joined="come|on",
    )
    assert list(inputs) == ["number", "scalar", "vector", "cube", "picture", "words", "joined"]
    for name, shape in {"number": (1,), "scalar": (1,), "vector": (2,), "cube": (1, 2, 2)}.items():
        assert (inputs[name].dtype, inputs[name].shape) == (np.float32, shape)
    assert inputs["vector"].tolist() == [7756, 9549]
    assert inputs["picture"] == Image(b"not really a JPEG")
    assert inputs["words"].tolist() == ["come", "on", "united"]
    assert inputs["joined"].tolist() == ["come", "on"]


@pytest.mark.parametrize("indices", [[[1, 2, 3], [4, 5, 6]], [[1, 4], [2, 5], [3, 6]]])
def test_sparse_indices_may_have_a_row_per_dimension_or_per_value(indices):
    tensor = sparse(indices=indices)
    assert isinstance(tensor, SparseTensor)
    assert tensor.shape == (100, 10)
    assert tensor.values.tolist() == [0.5, 1.5, 2.5]
    assert tensor.indices.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_square_sparse_indices_are_read_if_only_one_way_fits_the_shape():
    assert sparse(data=[1, 2], indices=[[99, 98], [1, 2]]).indices.tolist() == [[99, 98], [1, 2]]
    assert sparse(data=[1, 2], indices=[[99, 1], [98, 2]]).indices.tolist() == [[99, 98], [1, 2]]
    assert sparse(data=[1, 2], indices=[[1, 2], [2, 3]]).indices.tolist() == [[1, 2], [2, 3]]
    with pytest.raises(InvalidInput, match="a row per dimension or a row per value"):
        sparse(data=[1, 2], indices=[[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indices": [[1, 2], [3, 4]]}, r"indices of shape \[2, 2\] for 3 values"),
        ({"indices": [[1, 2, 3], [4, 5]]}, "'sp.indices' is .* expected a list of numbers"),
        ({"indices": [[0.5, 2, 3], [4, 5, 6]]}, "not whole numbers"),
        ({"data": "abc"}, "'sp.data' is 'abc'"),
        ({"shape": [-1, 10]}, "no negative size"),
        ({"values": []}, "is an object with"),
    ],
)
def test_a_sparse_tensor_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(InvalidInput, match=message):
        sparse(**changes)


def test_sparse_values_have_the_dtype_of_the_model():
    tensor = {"shape": [4], "data": [2**53 + 1, -1], "indices": [[1, 2]]}
    assert original_json.to_input("sp", tensor, TensorSpec("sp", "int64", None)).values.tolist() == [2**53 + 1, -1]
    tensor["data"] = [0.1]
    tensor["indices"] = [[1]]
    assert original_json.to_input("sp", tensor, TensorSpec("sp", "float64", None)).values.tolist() == [0.1]


@pytest.mark.parametrize(
    ("dtype", "value", "read"),
    [
        ("uint64", [2**63, 2**53 + 1], "u8"),
        ("int64", [2**53 + 1, 1.0], "i8"),
        ("int64", -(2**63), "i8"),
        ("int32", [[1, True]], "i4"),
        ("", [2**24 + 1, 1], "i8"),
        ("", [2**53 + 1], "i8"),
        ("", [2**63, 2**24 + 1], "u8"),
        ("", [2**24, 1], "f4"),
        ("", [1, 2.5], "f4"),
        ("float32", [1, 2], "f4"),
    ],
)
def test_whole_numbers_are_not_changed(dtype, value, read):
    array = original_json.to_input("x", value, TensorSpec("x", dtype, None))
    assert array.dtype == read
    assert array.ravel().tolist() == np.array(value, object).ravel().tolist()


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("int64", -(2**63) - 1, r"'x' is -9223372036854775809; expected a whole number of at most 64 bits"),
        # What orjson makes of that number.
        ("int64", [1, -float(2**63)], r"x\[1\] is -9.22.*e\+18; expected a whole number of at most 64 bits, in digits"),
        ("int64", [[1], [1.5]], r"x\[1\]\[0\] is 1.5; expected a whole number"),
        ("uint64", [2**63, -1], r"x\[1\] is -1; expected a whole number from 0 to"),
        ("", 2**64, r"x\[0\] is 18446744073709551616; expected a number of at most 64 bits"),
    ],
)
def test_a_whole_number_that_would_change_is_refused_with_its_place(dtype, value, message):
    with pytest.raises(InvalidInput, match=message):
        original_json.to_input("x", value, TensorSpec("x", dtype, None))


@pytest.mark.parametrize(
    ("value", "shape", "read"),
    [
        ([1, None, 2.5], (None,), [1, np.nan, 2.5]),
        ([[None, 1], [2, None]], None, [[np.nan, 1], [2, np.nan]]),
        (None, (), np.nan),
        (None, (1,), [np.nan]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_null_is_a_missing_value_for_an_input_of_floating_point(dtype, value, shape, read):
    spec = TensorSpec("x", dtype, None if shape is None else (None, *shape))
    array = original_json.to_input("x", value, spec)
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, read)


@pytest.mark.parametrize(
    ("dtype", "value", "shape", "message"),
    [
        ("int64", [1, None], (None, 2), r"x\[1\] is null; expected a whole number"),
        ("", [1, None], (None, 2), r"x\[1\] is null; expected a number"),
        ("float32", None, (None, 2), "holds null"),
        ("float32", [1, None, "cat"], (None, 3), r"x\[2\] is 'cat'; expected a number"),
        ("float32", [[1, None], [1]], (None, 2, 2), r"x\[1\] has length 1"),
    ],
)
def test_null_is_refused_where_no_number_can_be_missing(dtype, value, shape, message):
    with pytest.raises(InvalidInput, match=message):
        original_json.to_input("x", value, TensorSpec("x", dtype, shape))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1, 2], [3]], r"wrong\[1\] has length 1, a list before it 2"),
        ([[[1, 2]], [[1, 2], [3, 4]]], r"wrong\[1\] has length 2, a list before it 1"),
        ([1, [2, 3]], r"wrong\[1\] is \[2, 3\]; expected a number"),
        ([[1, 2], 3], r"wrong\[1\] is 3; expected a list of length 2"),
        ([[1, [2]], [3, 4]], r"wrong\[0\]\[1\] is \[2\]; expected a number"),
        ([1, "2"], r"wrong\[1\] is '2'; expected a number"),
        (["1", 2], r"wrong\[1\] is 2; expected a text"),
        ([1, 2**70], r"wrong\[1\] is 1180591620717411303424; expected a number of at most 64 bits"),
        ([], "empty list"),
        ([1, 1e300], "too large for float32"),
        (None, "holds null"),
        ([True, None], r"wrong\[1\] is null; expected a number"),
        ([{}], "holds {}"),
        ({"b64": 1}, "'b64' is 1; expected the base64 text of an image"),
        ({"url": "a"}, r"an object with \['url'\]; expected shape, data, indices .* or b64 alone, of an image"),
        ("no picture!", "neither a base64 image nor a string tensor"),
    ],
)
def test_a_value_that_is_no_tensor_is_refused_by_name(value, message):
    with pytest.raises(InvalidInput, match=f"'wrong'.*{message}"):
        decode(right=[1], wrong=value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "is not JSON"),
        (b"\xff\xff", "is not JSON"),
        (b"[]", "no list 'instances'"),
        (b'{"instances": []}', "no list 'instances'"),
        (b'{"instances": [[1, 2]]}', r"the first instance is \[1, 2\]"),
        (b'{"instances": [{}]}', "the first instance is {}"),
        (b'{"instances": [{"x": ' + b"[" * 1_000_000, "nested too deeply"),
        (b'{"instances": [{"x": ' + b"[" * 40 + b"1" + b"]" * 40 + b"}]}", "nested 40 lists deep"),
        (b'{"instances": ' + b"[" * 400 + b"]" * 400 + b"}", "the first instance is"),
    ],
)
def test_a_body_that_is_no_request_is_refused_with_the_reason(body, message):
    started = time.monotonic()
    with pytest.raises(InvalidInput, match=message) as caught:
        original_json.decode_request(body)
    assert time.monotonic() - started < 1
    assert len(str(caught.value)) < 400


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["shape", "data", "indices"]), inner),
    max_leaves=12,
)


@given(_JSON)
def test_any_json_is_read_or_refused(value):
    for body in (value, {"instances": value}, {"instances": [{"x": value}]}):
        try:
            inputs = original_json.decode_request(json.dumps(body).encode())
        except InvalidInput as error:
            assert str(error)
        else:
            assert all(isinstance(item, (np.ndarray, SparseTensor, Image)) for item in inputs.values())


@pytest.mark.parametrize("values", [[1, "x" * 100_000, *[""] * 1000], [[1.5], ["x" * 100_000], *[[""]] * 1000]])
def test_a_long_text_among_numbers_costs_no_more_than_itself(values):
    tracemalloc.start()
    with pytest.raises(InvalidInput, match="expected a number of at most 64 bits$"):
        original_json.to_input("x", values)
    with pytest.raises(InvalidInput, match="expected a list of numbers"):
        original_json.to_input("x", {"shape": values, "data": values, "indices": values})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_an_entry_with_serde_stream_is_such_a_body():
    signature, inputs = Entry(b"1-0", "u", b'{"instances": [{"x": [1, 2]}]}', b"stream").decode()
    assert inputs["x"].tolist() == [1, 2]
    assert signature[0].shape == (2,)
