"""Our own encoding."""

import json
import subprocess
import sys
from pathlib import Path

import hypothesis.extra.numpy as hnp
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.protocol import tensors
from cluster_serving.protocol.entry import NATIVE, Entry
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Image, SparseTensor
from cluster_serving.protocol.signature import DTYPES, signature
from cluster_serving.protocol.values import floats

GOLDEN = Path(__file__).parent / "golden" / "native.arrow"

arrays = hnp.arrays(st.sampled_from(sorted(DTYPES)), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))


@given(st.dictionaries(st.text(min_size=1), arrays, min_size=1, max_size=4))
def test_numbers_survive_with_their_dtype_shape_name_and_order(inputs):
    found, decoded = tensors.decode(tensors.encode(inputs))
    assert list(decoded) == list(inputs)
    assert found == signature(inputs)
    for name, array in inputs.items():
        assert decoded[name].dtype == array.dtype
        assert decoded[name].shape == array.shape
        assert decoded[name].tobytes() == array.tobytes()


@given(hnp.arrays(object, hnp.array_shapes(min_dims=0, max_dims=3), elements=st.text()))
def test_strings_survive(array):
    _, decoded = tensors.decode(tensors.encode({"s": array}))
    assert decoded["s"].tolist() == array.tolist()


def test_images_and_sparse_tensors_survive():
    sparse = SparseTensor(np.array([[0, 1], [2, 3]]), np.array([1.5, 2.5]), (5, 6))
    _, decoded = tensors.decode(tensors.encode({"img": Image(b"\x00\xff"), "sp": sparse}))
    assert decoded["img"] == Image(b"\x00\xff")
    np.testing.assert_array_equal(decoded["sp"].indices, sparse.indices)
    np.testing.assert_array_equal(decoded["sp"].values, sparse.values)
    assert decoded["sp"].shape == (5, 6)


def test_payloads_of_today_are_read_by_every_later_version():
    _, inputs = tensors.decode(GOLDEN.read_bytes())
    assert list(inputs) == ["x", "n", "s", "img", "sp"]
    assert (inputs["x"].dtype, inputs["x"].tolist()) == (np.float32, [[1.5, 2.5]])
    assert (inputs["n"].dtype, inputs["n"].shape, inputs["n"].item()) == (np.int64, (), 7)
    assert inputs["s"].tolist() == ["a", "é"]
    assert inputs["img"] == Image(b"\x89PNG")
    assert (inputs["sp"].indices.tolist(), inputs["sp"].values.tolist()) == ([[0, 1], [2, 3]], [0.5, 1.5])
    assert inputs["sp"].shape == (4, 5)


def test_big_endian_numbers_arrive_as_the_same_numbers():
    _, decoded = tensors.decode(tensors.encode({"x": np.array([1, 2], ">i4")}))
    assert decoded["x"].tolist() == [1, 2]


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data):
    with pytest.raises(InvalidInput):
        tensors.decode(data)


@given(st.data())
def test_a_damaged_payload_is_decoded_or_refused_but_never_crashes(data):
    payload = bytearray(tensors.encode({"x": np.arange(6.0), "s": np.array(["a", "bc"], object)}))
    for _ in range(data.draw(st.integers(1, 8))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        tensors.decode(bytes(payload[: data.draw(st.integers(0, len(payload)))]))
    except InvalidInput as error:
        assert str(error)


@pytest.mark.parametrize(
    ("array", "message"), [(np.array(["2020"], "M8[D]"), "datetime64"), (np.array([object()]), "to be str")]
)
def test_dtypes_that_do_not_travel_are_refused_by_name(array, message):
    with pytest.raises(InvalidInput, match=message):
        tensors.encode({"x": array})


def test_a_request_without_inputs_is_refused():
    with pytest.raises(InvalidInput, match="no inputs"):
        tensors.encode({})


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_payload_is_refused_before_it_is_unpacked(codec):
    batch = pa.ipc.open_stream(tensors.encode({"x": np.zeros(1 << 20)})).read_next_batch()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    with pytest.raises(InvalidInput, match="compressed"):
        tensors.decode(sink.getvalue().to_pybytes())


def test_a_null_cell_is_the_senders_error():
    batch = pa.ipc.open_stream(tensors.encode({"x": np.zeros(3), "s": np.array(["a"], object)})).read_next_batch()
    for name in ("x", "s"):
        arrays = [
            pa.nulls(1, column.type) if field.name == name else column
            for field, column in zip(batch.schema, batch.columns, strict=True)
        ]
        schema = pa.schema([field.with_nullable(True) for field in batch.schema])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
        with pytest.raises(InvalidInput, match="cannot be read"):
            Entry(b"1-0", "u", sink.getvalue().to_pybytes(), NATIVE).decode()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": np.array(["a", "\udc80"], object)}, r"'x' holds '\\udc80', which is not Unicode text"),
        ({"\ud800": np.zeros(1)}, r"an array has the name '\\ud800', which is not Unicode text"),
    ],
)
def test_texts_that_are_no_unicode_are_refused(inputs, message):
    with pytest.raises(InvalidInput, match=message):
        tensors.encode(inputs)


def test_more_names_than_can_be_read_are_not_sent():
    with pytest.raises(InvalidInput, match="1000 arrays have names and shapes of .* bytes; at most 65536 are taken"):
        tensors.encode({f"x{number}": np.zeros(1) for number in range(1000)})


def test_names_of_an_anonymous_caller_are_not_remembered():
    before = [cache.cache_info().currsize for cache in (tensors._schema, tensors._layout, tensors._columns)]
    for number in range(3):
        _, decoded = tensors.decode(tensors.encode({f"{number}" * 20_000: np.ones(2)}))
        many = tensors.encode({f"{number}-{index}": np.ones(1) for index in range(100)})
        assert [array.tolist() for array in decoded.values()] == [[1, 1]]
        assert len(tensors.decode(many)[1]) == 100
    assert [cache.cache_info().currsize for cache in (tensors._schema, tensors._layout, tensors._columns)] == before


def test_a_payload_that_claims_more_than_it_holds_costs_no_more_than_it_holds():
    claimed = tensors.encode({"claimed": np.zeros(1 << 20)})
    before = tensors._layout.cache_info().currsize
    for length in (len(claimed) // 3, 1000):
        with pytest.raises(InvalidInput):
            tensors.decode(claimed.replace(b"claimed", b"hostile")[:length])
    assert tensors._layout.cache_info().currsize == before


@given(
    st.dictionaries(
        st.text(min_size=1), st.lists(st.floats(width=32) | st.integers(-9, 9) | st.booleans(), min_size=1), min_size=1
    )
)
def test_lists_of_numbers_are_encoded_as_the_arrays_of_them(lists):
    arrays = {name: np.array(values, "f4") for name, values in lists.items()}
    assert floats.encode_floats(lists) == tensors.encode(arrays)


@pytest.mark.parametrize("shape", [(1,), (5000,), (1, 1), (2, 3), (28, 28), (4, 1, 3), (5, 4, 3, 2), (1,) * 32])
def test_nested_lists_of_numbers_are_encoded_as_the_arrays_of_them(shape):
    array = np.random.default_rng(0).random(shape, "f4")
    assert floats.encode_floats({"x": array.tolist()}) == tensors.encode({"x": array})


NO_FLOATS = [[], [1.0, "2"], [None], "text", 1.0, [1e39], [10**400], json.loads("[" * 33 + "1" + "]" * 33)]
RAGGED = [[[1.0], []], [[], []], [[1.0], [1.0, 2.0]], [[1.0], 2.0], [1.0, [2.0]], [[[1.0]], [2.0]], [[1.0], ["2"]]]


@pytest.mark.parametrize("value", [*NO_FLOATS, *RAGGED])
def test_anything_but_numbers_of_float32_is_left_to_the_general_way(value):
    assert floats.encode_floats({"x": [1.0], "y": value}) is None


def test_no_kind_of_input_imports_pandas():
    code = (
        "import sys, numpy as np\n"
        "from cluster_serving.protocol import inputs, tensors\n"
        "values = {'x': np.zeros(3, 'f4'), 'text': np.array(['a', None], object), 'image': inputs.Image(b'1'),\n"
        "    'images': inputs.Images([b'1', b'2']),\n"
        "    'sparse': inputs.SparseTensor(np.zeros((1, 1), 'i8'), np.ones(1, 'f4'), (4,))}\n"
        "assert list(tensors.decode(tensors.encode(values))[1]) == list(values)\n"
        "print('pandas' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
