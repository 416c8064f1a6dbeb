from __future__ import annotations

import re
from functools import partial

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cluster_serving.job.batch import BatchMemory
from cluster_serving.job.kinds.sparse import MAX_DENSE_ELEMENTS
from cluster_serving.job.models import TensorSpec
from cluster_serving.job.options import ImageOptions
from cluster_serving.job.preprocessing import Preprocessor as OfKernel
from cluster_serving.job.ways import CONVERSION, KINDS
from cluster_serving.protocol.encryption.images import encrypt
from cluster_serving.protocol.errors import InvalidInput, RequestTooLarge
from cluster_serving.protocol.inputs import Image, SparseTensor
from cluster_serving.protocol.record_key import RecordKey

Preprocessor = partial(OfKernel, kinds=KINDS, conversion=CONVERSION)
VECTOR = TensorSpec("x", "float32", (None, 3))
PNG = Image(cv2.imencode(".png", np.zeros((4, 6, 3), np.uint8))[1].tobytes())


def prepare(spec, value, *, layout="CHW", resize=None, already_batched=False):
    preprocessor = Preprocessor([spec], layout, ImageOptions(resize=resize), already_batched)
    (array,) = preprocessor.prepare({"x": value})
    return array


def refusal(spec, value, error=InvalidInput, **options) -> str:
    with pytest.raises(error) as caught:
        prepare(spec, value, **options)
    return str(caught.value)


def text(*words) -> np.ndarray:
    return np.array(words, object)


# Matching of inputs


@pytest.fixture
def two():
    specs = [TensorSpec("a", "float32", (None, 1)), TensorSpec("b", "float32", (None, 2))]
    return Preprocessor(specs, "CHW", ImageOptions())


A, B = np.zeros(1, np.float32), np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("record", "names"),
    [
        ({"b": B, "a": A}, ["a", "b"]),
        ({"first": A, "second": B}, ["first", "second"]),
        ({"a": A}, None),
        ({"a": A, "b": A}, None),
        ({"a": A, "b": B.astype("f8")}, None),
        ({"a": A, "b": PNG}, None),
        ({"a": A, "b": text("x", "y")}, None),
        ({"a": A, "b": SparseTensor(np.zeros((1, 1), "i8"), A, (2,))}, None),
    ],
)
def test_arrays_that_the_model_takes_pass_unchanged(two, record, names):
    assert two.untouched(record) == names
    if names:
        assert all(array is record[name] for array, name in zip(two.prepare(record), names, strict=True))


@pytest.mark.parametrize("dtype", ["", "str"])
def test_texts_are_checked_even_if_the_model_takes_anything(dtype):
    preprocessor = Preprocessor([TensorSpec("x", dtype, None)], "CHW", ImageOptions())
    assert preprocessor.untouched({"x": text("a")}) is None
    assert preprocessor.untouched({"x": A}) == (None if dtype else ["x"])


def test_batches_of_a_client_are_checked():
    assert Preprocessor([VECTOR], "CHW", ImageOptions(), True).untouched({"x": np.zeros((1, 3), "f4")}) is None


def test_inputs_are_matched_by_name(two):
    assert [array.shape for array in two.prepare({"b": B, "a": A})] == [(1,), (2,)]


def test_inputs_of_other_names_are_matched_by_position(two):
    assert [array.shape for array in two.prepare({"t": A, "u": B})] == [(1,), (2,)]
    assert [array.shape for array in Preprocessor([VECTOR], "CHW", ImageOptions()).prepare({"X": np.zeros(3)})] == [
        (3,)
    ]


def test_missing_and_unknown_names_are_told_first(two):
    for record, problem in (
        ({"a": A, "u": B}, "'b' is missing, 'u' is unknown: the request has the inputs 'a', 'u'; the model"),
        ({"a": A}, "'b' is missing: the request has 1 input ('a'); the model"),
        ({"a": A, "b": B, "c": A, "d": A}, "'c', 'd' are unknown: the request has 4 inputs"),
    ):
        with pytest.raises(InvalidInput) as caught:
            two.prepare(record)
        assert str(caught.value).startswith(problem)


def test_a_column_with_a_space_in_its_name_is_told_by_that_name():
    columns = [TensorSpec(name, "float32", [], column="yes") for name in ("petal length", "petal_width")]
    table = Preprocessor(columns, "CHW", ImageOptions())
    for record, problem in (
        ({"petal length": A, "petal_width": A, "colour": A}, "'colour' is unknown: the request has 3 inputs"),
        ({"petal length": A}, "'petal_width' is missing: the request has 1 input"),
        ({"petal length": A, "petal width": A, "x": A}, "'x' is unknown: the request has 3 inputs"),
    ):
        with pytest.raises(InvalidInput) as caught:
            table.prepare(record)
        assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("names", [("a", "u"), ("u", "b"), ("b", "u"), ("B", "A")])
def test_misspelled_names_are_refused(two, names):
    """By position, the inputs could be swapped."""
    record = dict(zip(names, (A, B), strict=True))
    assert two.untouched(record) is None
    with pytest.raises(InvalidInput) as caught:
        two.prepare(record)
    assert f"the request has the inputs {names[0]!r}, {names[1]!r}; the model expects a: float32[1]" in str(
        caught.value
    )


@pytest.mark.parametrize("record", [{}, {"a": A}, {"a": A, "b": B, "c": A}])
def test_a_wrong_number_of_inputs_is_refused(two, record):
    with pytest.raises(InvalidInput) as caught:
        two.prepare(record)
    assert f"the request has {len(record)} input" in str(caught.value)
    assert "the model expects 2: a: float32[1], b: float32[2]" in str(caught.value)
    assert all(repr(name) in str(caught.value) for name in record)


# Shapes


def test_missing_values_of_another_shape_are_called_null():
    for value, told in (
        (np.array(None), "null[]"),
        (np.array([None] * 2), "null[2]"),
        (np.array(["", None]), "str[2]"),
    ):
        assert refusal(VECTOR, value) == f"input 'x' is {told}, but the model expects x: float32[3]"


def test_an_array_that_fits_is_not_touched():
    value = np.zeros(3, np.float32)
    assert prepare(VECTOR, value) is value


@pytest.mark.parametrize("shape", [(), (2,), (1, 3), (3, 1), (0,)])
def test_a_wrong_shape_is_refused_with_both_shapes(shape):
    message = refusal(VECTOR, np.zeros(shape, np.float32))
    assert message == f"input 'x' is float32[{', '.join(map(str, shape))}], but the model expects x: float32[3]"


def test_a_free_dimension_takes_any_size():
    spec = TensorSpec("x", "float32", (None, None, 2))
    assert prepare(spec, np.zeros((5, 2), np.float32)).shape == (5, 2)
    assert "expects x: float32[?, 2]" in refusal(spec, np.zeros((5, 3), np.float32))


def test_a_single_number_fits_a_model_of_single_numbers():
    assert prepare(TensorSpec("x", "float32", (None,)), np.array(1.5, np.float32)).shape == ()


def test_a_shape_or_dtype_that_the_model_does_not_say_is_not_checked():
    value = np.zeros((2, 7), np.int16)
    assert prepare(TensorSpec("x", "", None), value) is value
    assert prepare(TensorSpec("x", "", (None, 2, 7)), value) is value


def test_records_that_are_batched_already_keep_their_batch():
    value = np.zeros((5, 3), np.float32)
    assert prepare(VECTOR, value, already_batched=True) is value
    assert prepare(TensorSpec("x", "float32", (4, 3)), value, already_batched=True) is value
    assert "expects x: float32[?, 3]" in refusal(VECTOR, np.zeros(3, np.float32), already_batched=True)


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_a_record_without_a_batch_is_refused(shape):
    spec = TensorSpec("x", "float32", None)
    assert "no batch dimension, or an empty one" in refusal(spec, np.zeros(shape, np.float32), already_batched=True)


def test_inputs_of_one_record_have_one_batch():
    specs = [TensorSpec("a", "float32", (None, 1)), TensorSpec("b", "float32", (None, 2))]
    preprocessor = Preprocessor(specs, "CHW", ImageOptions(), already_batched=True)
    with pytest.raises(InvalidInput, match="differ in their batch dimension: 'a' 2, 'b' 3"):
        preprocessor.prepare({"a": np.zeros((2, 1), np.float32), "b": np.zeros((3, 2), np.float32)})


# Dtypes


@pytest.mark.parametrize(
    ("sent", "taken"),
    [
        ("float64", "float32"),
        ("float32", "float64"),
        ("float32", "float16"),
        ("int64", "float32"),
        ("uint8", "float32"),
        ("bool", "float32"),
        ("int32", "int64"),
        ("bool", "int64"),
        ("int64", "int32"),
        ("int64", "uint8"),
        ("float32", "int64"),
        ("float32", "uint8"),
        ("float32", "bool"),
        ("int64", "bool"),
        ("float32", "complex64"),
    ],
)
def test_numbers_are_converted_where_they_keep_their_value(sent, taken):
    array = prepare(TensorSpec("x", taken, (None, 3)), np.array([0, 1, 1], sent))
    assert array.dtype == taken
    assert array.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (np.float32(0.5), "int64"),
        (np.float32(-0.5), "uint8"),
        (np.float32(256), "uint8"),
        (np.float32(-1), "uint8"),
        (np.float32(np.nan), "int64"),
        (np.float32(np.inf), "int32"),
        (np.float32(2**31), "int32"),
        (np.float64(2**63), "int64"),
        (np.float32(2), "bool"),
        (np.int64(2), "bool"),
        (np.int64(2**31), "int32"),
        (np.int64(-1), "uint64"),
        (np.uint64(2**63), "int64"),
    ],
)
def test_values_that_would_change_are_refused(value, taken):
    message = refusal(TensorSpec("x", taken, (None,)), np.array(value))
    expected = "true or false" if taken == "bool" else rf"a whole number from -?\d+ to \d+ \({taken}\)"
    assert re.fullmatch(
        rf"input 'x' is {re.escape(str(value.item()))}; expected {expected}; the model expects x: {taken}\[\]", message
    )


@given(
    arrays.arrays(st.sampled_from(["float32", "float64", "int64", "uint64", "int8"]), (3,)),
    st.sampled_from(["int8", "int32", "int64", "uint8", "uint64", "bool"]),
)
def test_a_conversion_to_integers_is_exact_or_refused(value, taken):
    try:
        array = prepare(TensorSpec("x", taken, (None, 3)), value)
    except InvalidInput:
        return
    assert [int(item) for item in array] == [int(item) for item in value]
    assert all(item == int(item) for item in value.tolist())


def test_numbers_too_large_for_the_model_are_refused():
    expected = (
        "input 'x': x[1] is 1e+300; expected a number of at most 3.4e+38 (float32); the model expects x: float32[3]"
    )
    assert refusal(VECTOR, np.array([1, 1e300, 0])) == expected
    assert prepare(VECTOR, np.array([1, np.inf, np.nan]))[1] == np.inf


@pytest.mark.parametrize(
    ("dtype", "computed", "taken", "beyond"),
    [
        ("int64", "int32", [2**31 - 1, -(2**31), 0], 2**31),
        ("uint64", "int32", [2**31 - 1, 1, 0], 2**31),
        ("float64", "float32", [3.4e38, 1 / 3, np.nan], -np.inf),
    ],
)
def test_numbers_beyond_those_that_the_engine_computes_are_refused(dtype, computed, taken, beyond):
    spec = TensorSpec("x", dtype, (None, 3), computed)
    np.testing.assert_array_equal(prepare(spec, np.array(taken, dtype)), np.array(taken, dtype))
    values = np.array([*taken[:2], beyond], dtype)
    assert Preprocessor([spec], "CHW", ImageOptions()).untouched({"x": values}) is None
    expected = f"input 'x' has values beyond those of {computed}, in which the engine computes x: {dtype}[3]"
    assert refusal(spec, values) == expected


def test_complex_numbers_are_refused():
    for dtype in ("float32", "int64"):
        message = refusal(TensorSpec("x", dtype, (None, 3)), np.zeros(3, np.complex64))
        assert message == f"input 'x': x[0] is 0j; expected {dtype}; the model expects x: {dtype}[3]"


def test_an_empty_array_is_converted():
    spec = TensorSpec("x", "int64", (None, None))
    assert prepare(spec, np.zeros(0, np.float32)).dtype == np.int64


# Strings


def test_strings_become_objects():
    spec = TensorSpec("x", "str", (None, 2))
    value = text("a", "b")
    assert prepare(spec, value) is value
    assert prepare(spec, np.array(["a", "b"])).dtype == object


def test_strings_and_numbers_are_not_mixed_up():
    spec = TensorSpec("x", "str", (None, 3))
    number = "input 'x': x[0] is 0.0; expected a text; the model expects x: str[3]"
    assert refusal(spec, np.zeros(3, np.float32)) == number
    for texts in (text("a", "b", "c"), np.array(["a", "b", "c"])):
        assert refusal(VECTOR, texts) == "input 'x': x[0] is 'a'; expected a number; the model expects x: float32[3]"
    assert "expects x: str[3]" in refusal(spec, text("a", 1, b"c"))


# Images


def test_an_image_takes_the_layout_of_the_engine_where_the_model_leaves_it_open():
    spec = TensorSpec("x", "float32", (None, None, None, None))
    assert prepare(spec, PNG, layout="CHW").shape == (3, 4, 6)
    assert prepare(spec, PNG, layout="HWC").shape == (4, 6, 3)
    assert prepare(TensorSpec("x", "", None), PNG).dtype == np.float32


@pytest.mark.parametrize("layout", ["CHW", "HWC"])
def test_an_image_takes_the_layout_that_the_shape_shows(layout):
    assert prepare(TensorSpec("x", "float32", (None, 3, 4, 6)), PNG, layout=layout).shape == (3, 4, 6)
    assert prepare(TensorSpec("x", "uint8", (None, 4, 6, 3)), PNG, layout=layout).dtype == np.uint8


def test_an_image_is_scaled_and_gets_a_batch_if_records_have_one():
    spec = TensorSpec("x", "float32", (None, 3, 8, 10))
    assert prepare(spec, PNG, resize=(10, 8)).shape == (3, 8, 10)
    assert prepare(spec, PNG, resize=(10, 8), already_batched=True).shape == (1, 3, 8, 10)


def test_an_array_is_not_scaled():
    spec = TensorSpec("x", "float32", (None, 3, 8, 10))
    assert "float32[3, 4, 6]" in refusal(spec, np.zeros((3, 4, 6), np.float32), resize=(10, 8))


def test_an_image_of_another_size_is_refused_with_advice():
    message = refusal(TensorSpec("x", "float32", (None, 3, 8, 10)), PNG)
    assert "'x' is an image of 6 x 4 pixels (float32[3, 4, 6])" in message
    assert 'the model expects x: float32[3, 8, 10]; imageResize: "width,height"' in message


def test_advice_is_given_only_where_it_helps():
    message = refusal(TensorSpec("x", "float32", (None, 1, 4, 6)), PNG)
    assert message.endswith("the model expects x: float32[1, 4, 6]")


@pytest.mark.parametrize("dtype", ["bool", "int8", "str"])
def test_an_image_is_refused_by_an_input_that_cannot_hold_it(dtype):
    assert "'x' is an image, but the model expects" in refusal(TensorSpec("x", dtype, (None, 3, 4, 6)), PNG)


@pytest.mark.parametrize("shape", [(), (3,), (1, 3, 4, 6)])
def test_an_image_is_refused_by_an_input_of_another_rank(shape):
    assert "'x' is an image, but the model expects x: float32[" in refusal(
        TensorSpec("x", "float32", (None, *shape)), PNG
    )


def test_a_damaged_image_is_refused_by_name():
    spec = TensorSpec("x", "float32", (None, 3, 4, 6))
    assert "input 'x' is damaged" in refusal(spec, Image(PNG.data[:-20]))


# Encrypted images

KEY = RecordKey("of my own", "and my salt")


def test_an_encrypted_image_is_decrypted_before_it_is_decoded():
    spec = TensorSpec("x", "float32", (None, 3, 8, 10))
    options = ImageOptions(resize=(10, 8), record_key=KEY)
    (array,) = Preprocessor([spec], "CHW", options).prepare({"x": encrypt(PNG.data, KEY)})
    np.testing.assert_array_equal(array, prepare(spec, PNG, resize=(10, 8)))


@pytest.mark.parametrize("value", [PNG, Image(b"short"), encrypt(PNG.data, RecordKey("another", "key"))])
def test_an_image_that_cannot_be_decrypted_is_refused_by_name(value):
    preprocessor = Preprocessor([TensorSpec("x", "float32", (None, 3, 4, 6))], "CHW", ImageOptions(record_key=KEY))
    with pytest.raises(InvalidInput, match=r"input 'x' is an image .*\(recordEncrypted\)"):
        preprocessor.prepare({"x": value})


def test_other_inputs_than_images_are_taken_as_they_are():
    value = np.zeros(3, np.float32)
    assert Preprocessor([VECTOR], "CHW", ImageOptions(record_key=KEY)).prepare({"x": value}) == [value]


# Sparse tensors


def sparse(shape=(3,), indices=((0, 2),), values=(1.0, 2.0)) -> SparseTensor:
    return SparseTensor(np.array(indices, np.int64), np.array(values, np.float32), shape)


def test_a_sparse_tensor_becomes_dense():
    assert prepare(VECTOR, sparse()).tolist() == [1, 0, 2]
    table = SparseTensor(np.array([[0, 1], [2, 0]]), np.array([5, 6]), (2, 3))
    dense = prepare(TensorSpec("x", "float32", (None, 2, 3)), table)
    assert dense.dtype == np.float32
    assert dense.tolist() == [[0, 0, 5], [6, 0, 0]]


@pytest.mark.parametrize("indices", [[[0, 1], [0, 2]], [[1, 2], [0, 0]], [[1, 0], [1, 2], [0, 1]]])
def test_sparse_indices_may_have_a_row_per_value(indices):
    values = range(1, len(indices) + 1)
    dense = prepare(TensorSpec("x", "float32", (None, 2, 3)), sparse((2, 3), np.array(indices), values))
    # Two values in two dimensions: a row per dimension, unless an index would be outside.
    rows = indices if indices == [[0, 1], [0, 2]] else np.transpose(indices).tolist()
    assert [dense[index] for index in zip(*rows, strict=True)] == list(values)


def test_an_empty_sparse_tensor_is_all_zeros():
    assert prepare(VECTOR, sparse(indices=np.zeros((1, 0)), values=())).tolist() == [0, 0, 0]


def test_a_sparse_tensor_may_be_batched_already():
    assert prepare(VECTOR, sparse((2, 3), [[0, 1], [0, 2]]), already_batched=True).tolist() == [[1, 0, 0], [0, 0, 2]]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (sparse(shape=(4,)), "is sparse float32[4], but the model expects x: float32[3]"),
        (sparse(indices=[[0, 3]]), "with an index outside its shape [3]"),
        (sparse(indices=[[-1, 0]]), "with an index outside its shape [3]"),
        (
            sparse(indices=[[0, 1], [2, 2]]),
            "sparse with indices int64[2, 2] for 2 values in 1 dimensions; expected int64[1, 2]",
        ),
        (sparse(values=(1.0,)), "expected int64[1, 1]"),
        (
            sparse(indices=[[2, 2]]),
            "input 'x' is sparse with several values at index [2]; expected one value per index",
        ),
        (SparseTensor(np.array([[0.0, 2.0]]), np.ones(2, np.float32), (3,)), "indices float64[1, 2]"),
        (SparseTensor(np.array([[0, 2]]), text("a", "b"), (3,)), "is 'a'; expected a number; the model expects"),
    ],
)
def test_a_malformed_sparse_tensor_is_refused(value, problem):
    assert problem in refusal(VECTOR, value)


@pytest.mark.parametrize("shape", [(), (-1,), (1,) * 33])
def test_a_sparse_tensor_needs_a_shape(shape):
    spec = TensorSpec("x", "float32", None)
    value = SparseTensor(np.zeros((len(shape), 0), np.int64), np.zeros(0, np.float32), shape)
    assert "is sparse and of shape" in refusal(spec, value)


@pytest.mark.parametrize("shape", [(MAX_DENSE_ELEMENTS + 1,), (2**62, 2**62), (0, 2**62, 2**62)])
def test_a_sparse_tensor_cannot_fill_the_memory(shape):
    value = SparseTensor(np.zeros((len(shape), 0), np.int64), np.zeros(0, np.float32), shape)
    spec = TensorSpec("x", "float32", (None,) * (len(shape) + 1))
    assert f"at most {MAX_DENSE_ELEMENTS} elements" in refusal(spec, value, RequestTooLarge)


# Anything at all

ANY_ARRAY = arrays.arrays(
    st.sampled_from(["float32", "float64", "int64", "uint64", "bool", "complex64", "<U3"]),
    arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
)
ANY_SPARSE = st.builds(
    SparseTensor,
    ANY_ARRAY,
    ANY_ARRAY,
    st.lists(st.one_of(st.integers(-1, 4), st.integers()), max_size=4).map(tuple),
)
ANY_IMAGE = st.builds(
    lambda position, byte: Image(PNG.data[:position] + bytes([byte]) + PNG.data[position + 1 :]),
    st.integers(0, len(PNG.data) - 1),
    st.integers(0, 255),
)
ANY_SHAPE = st.none() | st.lists(st.none() | st.integers(0, 4), max_size=4).map(lambda sizes: (None, *sizes))


@settings(max_examples=500, deadline=None)
@given(
    st.one_of(ANY_ARRAY, ANY_SPARSE, ANY_IMAGE),
    st.sampled_from(["float32", "float16", "int64", "uint8", "bool", "str", ""]),
    ANY_SHAPE,
    st.booleans(),
)
def test_any_input_is_prepared_or_refused(value, dtype, shape, already_batched):
    spec = TensorSpec("x", dtype, shape)
    try:
        array = prepare(spec, value, already_batched=already_batched)
    except InvalidInput as error:
        assert "'x'" in str(error)
        return
    # Pixels of images become the dtype of the model in the batch.
    batch = BatchMemory(spec.numpy_dtype).join([array], already_batched)
    assert dtype in ("", "str") or batch.dtype == dtype
    np.testing.assert_array_equal(batch if already_batched else batch[0], array)
    expected = shape if already_batched else spec.record_shape
    assert expected is None or len(expected) == array.ndim
