"""What `enqueue` accepts."""

import base64
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from cluster_serving.client.sending.convert import inputs_of, stacked, to_input, to_inputs
from cluster_serving.protocol import tensors
from cluster_serving.protocol.columns import STACKED_BYTES
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Image, SparseTensor


def test_images_may_be_a_path_bytes_or_base64(tmp_path):
    path, content = tmp_path / "a b.png", b"\x89PNG\r\n\x1a\nrest"
    path.write_bytes(content)
    text = base64.b64encode(content).decode()
    texts = np.array([str(path)])[0], np.array([content])[0]
    for value in (str(path), path, {"path": str(path)}, content, bytearray(content), {"b64": text}, *texts):
        assert to_input("img", value) == Image(content)


def test_a_text_gives_no_other_file_than_an_image_away(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(b"root:x:0:0")
    with pytest.raises(
        InvalidInput, match=r"'city' is the text '.*secret', a file that is not an image; send a text as"
    ):
        to_input("city", str(secret))
    # Whoever says that it is a path means it.
    for value in (secret, {"path": str(secret)}):
        assert to_input("img", value) == Image(b"root:x:0:0")


def test_pixels_are_sent_as_they_are():
    pixels = np.zeros((2, 2, 3), "u1")
    assert to_input("img", {"path": pixels}) is pixels


def test_lists_of_strings_and_numbers():
    assert to_input("s", ["one"]).tolist() == ["one"]
    assert to_input("n", 3).dtype == np.int64
    assert to_input("n", np.float32(3)).dtype == np.float32
    assert to_input("n", 3j).dtype == np.complex128
    for value, dtype in (
        ([[1, 2], [3, 4]], "i8"),
        ([(1, 2.5)], "f8"),
        ([True], "?"),
        (range(3), "i8"),
        ([2**63], "u8"),
        ([2**63, 2**53 + 1], "u8"),
        ([2**53 + 2, 1.0], "f8"),
        ([np.uint64(2**63), np.int64(2**53 + 1)], "u8"),
        ([np.array([2**63], "u8"), np.array([2**53 + 1])], "u8"),
        ([1e300, 2], "f8"),
    ):
        converted = to_input("n", value)
        assert converted.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(converted, value)
    assert to_input("n", [np.ones(2, "f4")] * 2).dtype == np.float32
    assert to_input("s", [["one", "two"], ["zwölf", ""]]).tolist() == [["one", "two"], ["zwölf", ""]]
    assert to_input("s", np.array(["one", "zwölf"])).tolist() == ["one", "zwölf"]
    assert to_input("s", np.array([b"one"])).tolist() == ["one"]


def test_a_whole_number_that_floats_beside_it_would_change_is_refused_with_its_place():
    for value, place in {
        (2**53 + 1, 1.0): "x[0]",
        ((1, 2), (0.5, -(2**53) - 1)): "x[1][1]",
        (-1, 2**63 + 1): "x[1]",
    }.items():
        with pytest.raises(InvalidInput, match=re.escape(f"input 'x': {place} is ")):
            to_input("x", value)


@pytest.mark.parametrize("text", ['{"instances": [[[1, 2]]]}', "[[[1, 2]]]", '\ufeff{"instances": [{"t": [[1, 2]]}]}'])
def test_a_row_of_json_need_not_have_a_name(text):
    assert to_inputs(inputs_of(text))["t"].tolist() == [[1, 2]]


def test_a_text_that_is_json_but_no_request_is_a_text():
    assert inputs_of("12") == {"t": "12"}


def test_three_arrays_are_a_sparse_tensor():
    sparse = to_input("sp", [np.array([[0, 1], [1, 2]]), np.array([1.0, 2.0]), np.array([3, 4])])
    assert isinstance(sparse, SparseTensor)
    assert sparse.shape == (3, 4)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "'x' is of type object"),
        ("/does/not/exist.png", r"cannot read the image file .*: No such file.*; send a text as np\.array\(text\)$"),
        ({"path": "/does/not/exist.png"}, r"cannot read the image file .*: No such file or directory$"),
        ({"path": 3}, "'path' is of type int"),
        ({"b64": "%%%"}, "not base64"),
        ({"other": 1}, "keys .'other'.; expected 'path' or 'b64'"),
        ([], "empty list"),
        ([[1], [2, 3]], r"'x' \(list of 2\) is not a tensor: .*inhomogeneous shape .* detected shape was \(2,\)"),
        ([1, "a"], r"'x' \(list of shape \[2\]\) holds items of type int"),
        ([[1, None, "a"]], r"'x' \(list of shape \[1, 3\]\) holds items of type int and str"),
        ([2**70], "holds items of type int; expected numbers of 64 bits at most, or str"),
        (np.array([[1], [2, 3]], object), r"'x' \(ndarray, dtype object, shape \(2,\)\) holds items of type list"),
        (
            np.array([b"\xff"]),
            r"'x' \(ndarray, dtype \|S1, shape \(1,\)\): element \[0\] is bytes, .* byte 0 \(0xff\) is not UTF-8",
        ),
        (np.ma.masked_array([1, 2], [True, False]), "'x' .MaskedArray, .* a mask cannot be sent"),
        ({1, 2}, "'x' is of type set; expected an array of numpy, PyTorch"),
        ([np.zeros((1, 2)), np.zeros(2), np.zeros(1)], "expected integers"),
        ([np.zeros((2, 2), int), np.zeros(3), np.zeros(2, int)], r"expected indices \(ndim, nnz\)"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_name(value, message):
    with pytest.raises(InvalidInput, match=message):
        to_input("x", value)


def test_small_arrays_that_are_alike_are_columns():
    rows = [np.float32([1, 2]), np.float32([3, 4])]
    assert {name: array.tolist() for name, array in stacked(rows).arrays.items()} == {"t": [[1, 2], [3, 4]]}
    named = [{"a": row, "b": np.array(index)} for index, row in enumerate(rows)]
    assert {name: array.tolist() for name, array in stacked(named).arrays.items()} == {
        "a": [[1, 2], [3, 4]],
        "b": [0, 1],
    }


@pytest.mark.parametrize(
    "items",
    [
        [{"a": np.zeros(2)}, {"b": np.zeros(2)}],
        [{"a": np.zeros(2)}, {"a": np.zeros(3)}],
        [{"a": np.zeros(2)}, {"a": np.zeros(2, "f4")}],
        [{"a": np.zeros(2)}, {"a": [0.0, 0.0]}],
        [{"a": np.zeros(2)}, np.zeros(2)],
        [{1: np.zeros(2)}] * 2,
        [{}, {}],
        [np.array("text", object)] * 2,
        [np.zeros(STACKED_BYTES)] * 2,
        ["path", "path"],
    ],
)
def test_other_items_are_converted_one_by_one(items):
    assert stacked(items) is None


@pytest.mark.parametrize(
    ("value", "dtype", "sent"),
    [
        (None, object, None),
        ([1, None], np.float64, [1, np.nan]),
        ([Decimal("1.10"), None], np.float64, [1.1, np.nan]),
        (["a", None], object, ["a", None]),
        (np.array(["a", np.nan], object), object, ["a", None]),
        (pd.Series([1, pd.NA], dtype="Int64"), np.float64, [1, np.nan]),
        (pd.Series(["a", pd.NA], dtype="string"), object, ["a", None]),
    ],
)
def test_a_missing_value_is_sent(value, dtype, sent):
    array = to_input("x", value)
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, np.array(sent, dtype))
    _, decoded = tensors.decode(tensors.encode({"x": array}))
    np.testing.assert_array_equal(decoded["x"], array)
