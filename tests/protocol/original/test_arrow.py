"""The original encoding, against payloads written by the original Python client 2.4.0 (tests/client/golden)."""

import base64
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Image, SparseTensor
from cluster_serving.protocol.original import arrow as original_arrow
from tests.support.payloads.early_arrow import reframed

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.b64").read_bytes()


@pytest.mark.parametrize("framing", [lambda data: data, reframed], ids=["modern", "legacy"])
def test_reads_every_input_kind_of_the_original_client(framing):
    dense = original_arrow.decode_request(framing(golden("dense")))["x"]
    assert dense.dtype == np.float32
    np.testing.assert_array_equal(dense, [[1, 2, 3], [4, 5, 6.5]])

    np.testing.assert_array_equal(original_arrow.decode_request(framing(golden("int64")))["t"], [7, 8])
    assert original_arrow.decode_request(framing(golden("scalar")))["x"] == np.float32(2.5)

    two = original_arrow.decode_request(framing(golden("two")))
    assert list(two) == ["a", "b"]
    assert two["b"].shape == (1, 1)

    assert original_arrow.decode_request(framing(golden("strings")))["s"].tolist() == ["come", "on", "united"]
    assert original_arrow.decode_request(framing(golden("image")))["img"] == Image(b"\x89PNG not really")

    sparse = original_arrow.decode_request(framing(golden("sparse")))["sp"]
    assert isinstance(sparse, SparseTensor)
    assert sparse.shape == (6, 7)
    np.testing.assert_array_equal(sparse.indices, [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(sparse.values, np.float32([0.5, 1.5, 2.5]))


def test_reads_a_tensor_whose_lists_share_one_row():
    row = {"indiceData": [], "indiceShape": [], "data": [1.0, 2.0], "shape": [2]}
    batch = pa.RecordBatch.from_arrays([pa.array([row], original_arrow._TENSOR)], names=["x"])
    np.testing.assert_array_equal(
        original_arrow.decode_request(original_arrow._to_base64([batch]).encode())["x"], [1, 2]
    )


def test_writes_what_the_original_client_writes():
    inputs = {"a": np.array([1.0, 2.0]), "b": np.array([[3.0]])}
    decoded = original_arrow.decode_request(original_arrow.encode_request(inputs).encode())
    expected = original_arrow.decode_request(golden("two"))
    assert {name: array.tolist() for name, array in decoded.items()} == {
        name: array.tolist() for name, array in expected.items()
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff\x00 not base64", "is not base64"),
        (base64.b64encode(b"random bytes"), "not of an Arrow IPC stream"),
        (base64.b64encode(base64.b64decode(golden("dense"))[:400]), "Arrow IPC stream"),
    ],
)
def test_garbage_is_refused_with_the_reason(data, message):
    with pytest.raises(InvalidInput, match=message):
        original_arrow.decode_request(data)


@pytest.mark.parametrize(
    ("data", "shape", "message"),
    [([1.0, 2.0], [3], "2 values for shape"), ([1.0], [-1], "negative")],
)
def test_a_tensor_that_contradicts_its_shape_is_refused(data, shape, message):
    row = {"indiceData": [], "indiceShape": [], "data": data, "shape": shape}
    batch = pa.RecordBatch.from_arrays([pa.array([row], original_arrow._TENSOR)], names=["x"])
    with pytest.raises(InvalidInput, match=message):
        original_arrow.decode_request(original_arrow._to_base64([batch]).encode())


def test_results_keep_shape_and_become_float32():
    outputs = [np.arange(10.0).reshape(1, 10), np.array([1, 2], "i8")]
    decoded = original_arrow.decode_result(original_arrow.encode_result(outputs))
    assert [array.shape for array in decoded] == [(1, 10), (2,)]
    assert {array.dtype.name for array in decoded} == {"float32"}


def test_a_tensor_of_negative_length_does_not_end_the_process():
    raw = bytearray(base64.b64decode(golden("dense")))
    lengths = [at for at in range(0, len(raw) - 8, 8) if raw[at : at + 8] == (4).to_bytes(8, "little")]
    refusals = []
    for at in lengths:
        damaged = raw[: at + 4] + b"\xff" * 4 + raw[at + 8 :]
        try:
            Entry(b"1-0", "uri", base64.b64encode(damaged)).decode()
        except InvalidInput as error:
            refusals.append(str(error))
    assert any("length is negative" in refusal for refusal in refusals)


@pytest.mark.parametrize("shapes", [[(3,)], [()], [(2, 3), (1, 1)], [(1, 4), (5,)]])
def test_payloads_of_known_layout_are_those_that_arrow_writes(shapes):
    arrays = [np.random.default_rng(0).normal(size=shape) for shape in shapes]
    inputs = {f"input {index}": array for index, array in enumerate(arrays)}
    assert original_arrow.encode_request(inputs) == original_arrow._encode_request(inputs)
    assert original_arrow.encode_result(arrays) == original_arrow._encode_result(arrays)


def test_payloads_of_known_layout_are_read_as_others_are():
    for value in (1.0, np.nan, 3.0):
        inputs = {"a": np.full((2, 3), value, "f4"), "b": np.full(1, -value, "f4")}
        decoded = original_arrow.decode_request(original_arrow.encode_request(inputs).encode())
        assert list(decoded) == ["a", "b"]
        for name, array in inputs.items():
            np.testing.assert_array_equal(decoded[name], array)
        outputs = original_arrow.decode_result(original_arrow.encode_result([*inputs.values()]))
        for output, array in zip(outputs, inputs.values(), strict=True):
            np.testing.assert_array_equal(output, array)
            assert output.flags.writeable


def test_a_payload_that_differs_from_a_known_one_beside_the_numbers_is_read_in_full():
    known = original_arrow.encode_request({"a": np.zeros(4)})
    other = original_arrow.encode_request({"b": np.zeros((2, 2))})
    for _ in range(2):
        assert original_arrow.decode_request(known.encode())["a"].shape == (4,)
        assert original_arrow.decode_request(other.encode())["b"].shape == (2, 2)
    raw = bytearray(base64.b64decode(known))
    # The list of numbers claims to be longer than the buffer.
    at = raw.index(np.array([0, 0, 0, 4, 4], "<i4").tobytes())
    raw[at + 12 : at + 20] = np.array([64, 64], "<i4").tobytes()
    with pytest.raises(InvalidInput):
        original_arrow.decode_request(base64.b64encode(raw))


def test_the_first_request_of_a_slot_imports_no_pandas():
    code = (
        "import sys; from pathlib import Path; from cluster_serving.protocol.original import arrow\n"
        "folder = Path(sys.argv[1]); arrow.decode_request((folder / 'sparse.b64').read_bytes())\n"
        "x = arrow.decode_request((folder / 'dense.b64').read_bytes())['x']\n"
        "arrow.decode_result(arrow.encode_result([x])); print('pandas' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(GOLDEN)], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
