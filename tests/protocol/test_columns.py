"""Requests of several records in one entry, and their results."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.protocol import columns, tensors
from cluster_serving.protocol.entry import NATIVE, Entry, parse_entry, request_fields
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput
from cluster_serving.protocol.inputs import Image, Images, SparseTensor
from cluster_serving.protocol.payloads import files as payload_files
from cluster_serving.protocol.results import encode_error, encode_result, to_fields
from cluster_serving.protocol.signature import Column, field_of
from cluster_serving.protocol.signature import signature as describe


def record(number, shape=(2,), dtype="f4"):
    return {"x": np.full(shape, number, dtype), "name": np.array(f"n{number}", object)}


def entry_of(inputs, records):
    fields = request_fields("u", inputs, records=records)
    return parse_entry(b"1-0", {name.encode(): to_fields({name: fields[name]})[name.encode()] for name in fields})


def read(inputs, records):
    """Return the signature of a record of an entry, and the inputs of each."""
    entry = entry_of(inputs, records)
    signature, values = entry.decode()
    each = [{name: value[index, ...] for name, value in values.items()} for index in range(records)]
    return columns.of_record(signature, entry.record_count), each


@given(st.lists(st.sampled_from([(2,), (3,), ()]), min_size=1, max_size=20), st.integers(1, 8))
def test_records_of_equal_inputs_share_entries_and_come_back_in_their_places(shapes, most):
    records = [record(index, shape) for index, shape in enumerate(shapes)]
    found = {}
    for indices, inputs in columns.chunks(records, most):
        assert len(indices) <= most
        parts = read(inputs, len(indices))[1] if len(indices) > 1 else [inputs]
        found.update(zip(indices, parts, strict=True))
    assert sorted(found) == list(range(len(records)))
    for index, part in found.items():
        np.testing.assert_array_equal(part["x"], records[index]["x"])
        assert part["name"].item() == f"n{index}"


def test_inputs_that_are_encoded_already_share_entries_too():
    records = [tensors.Encoded(tensors.encode(record(index))) for index in range(3)]
    ((indices, inputs),) = columns.chunks(records, 8)
    assert indices == [0, 1, 2]
    np.testing.assert_array_equal(inputs["x"], [[0, 0], [1, 1], [2, 2]])


def test_sparse_tensors_and_large_arrays_have_entries_of_their_own():
    large = np.zeros(columns.STACKED_BYTES // 4 + 1, "f4")
    sparse = SparseTensor(np.zeros((1, 1), "i8"), np.ones(1, "f4"), (2,))
    for records in ([{"x": sparse}] * 2, [{"x": large}] * 2):
        found = columns.chunks(records, 8)
        assert [indices for indices, _ in found] == [[0], [1]]
        assert [inputs is each for (_, inputs), each in zip(found, records, strict=True)] == [True, True]


@pytest.mark.parametrize("form", ["records", "encoded", "columns"])
def test_images_share_entries_beside_texts(form):
    records = [{"x": Image(bytes([index] * index)), "t": np.array(f"t{index}", object)} for index in range(5)]
    given = {
        "records": records,
        "encoded": [tensors.Encoded(tensors.encode(each)) for each in records],
        "columns": columns.Columns(
            {
                "x": Images([each["x"].data for each in records]),
                "t": np.array([each["t"].item() for each in records], object),
            }
        ),
    }
    chunks = columns.chunks(given[form], 2)
    assert [list(indices) for indices, _ in chunks] == [[0, 1], [2, 3], [4]]
    for indices, inputs in chunks[:2]:
        signature, parts = read(inputs, 2)
        assert signature == describe(records[0])
        assert parts == [records[index] for index in indices]
    assert columns.chunks(given["columns"], 2)[2][1] == records[4]


def test_images_of_an_entry_go_into_a_file_if_they_are_large_together():
    assert not payload_files.is_large({"x": Images([bytes(20_000)] * 3)})
    assert payload_files.is_large({"x": Images([bytes(20_000)] * 4)})


@pytest.mark.parametrize("files", [[b"a"], [b"a", None], [b"a", b"b", None], [b"a", b"b", b"c"]])
def test_a_column_with_missing_images_is_refused(files):
    schema = pa.schema([field_of(Column("x", "image", "", (2,)))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.record_batch([pa.array([files], schema.field(0).type)], schema=schema))
    with pytest.raises(InvalidInput, match=r"images for shape \(2,\)"):
        tensors.decode(sink.getvalue().to_pybytes())


def test_an_entry_has_at_most_4_mib_of_several_records():
    files = [bytes(size << 20) for size in (1, 2, 3, 5, 1, 1)]
    found = columns.chunks(columns.Columns({"x": Images(files)}), 8)
    assert [list(indices) for indices, _ in found] == [[0, 1], [2], [3], [4, 5]]
    rows = columns.Columns({"x": np.zeros((10, 1 << 17))})
    assert [len(indices) for indices, _ in columns.chunks(rows, 8)] == [4, 4, 2]


def test_columns_are_cut_into_entries_and_their_outputs_are_columns_again():
    records = columns.Columns({"x": np.arange(10).reshape(5, 2), "t": np.array([*"abcde"], object)})
    chunks = columns.chunks(records, 2)
    assert [list(indices) for indices, _ in chunks] == [[0, 1], [2, 3], [4]]
    assert chunks[1][1]["x"].tolist() == [[4, 5], [6, 7]]
    # A record by itself has no column.
    assert chunks[2][1]["x"].tolist() == [8, 9] and chunks[2][1]["t"].item() == "e"
    answers = [columns.Columns({"y": np.array(numbers)}) for numbers in ([1, 2], [3, 4])]
    gathered = columns.gathered(chunks, [*answers, [{"y": np.array(5)}]])
    assert [int(outcome["y"]) for outcome in gathered] == [1, 2, 3, 4, 5]
    assert columns.gathered(chunks[:2], answers).arrays["y"].tolist() == [1, 2, 3, 4]
    differing = [answers[0], columns.Columns({"y": np.array(["c", "d"], object)})]
    assert [outcome["y"].item() for outcome in columns.gathered(chunks[:2], differing)] == [1, 2, "c", "d"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"records": b"0"}, "expected a number from 1 to 4096"),
        ({"records": b"many"}, "expected a number from 1 to 4096"),
        ({"records": b"4097"}, "expected a number from 1 to 4096"),
        (
            {"records": b"3"},
            r"input 'x' is a tensor of shape \[2, 2\]; expected a tensor, texts or images of 3 records",
        ),
        ({"records": b"2", "reply_with": b"pieces"}, "without 'reply_with' 'pieces'"),
        ({"records": b"2", "serde": b"stream"}, "for requests with serde 'arrow'"),
    ],
)
def test_an_entry_that_is_no_column_is_refused(change, message):
    entry = Entry(b"1-0", "u", tensors.encode({"x": np.zeros((2, 2), "f4")}), NATIVE)._replace(**change)
    with pytest.raises(InvalidInput, match=message):
        columns.of_record(entry.decode()[0], entry.record_count)


def test_images_of_records_have_one_dimension():
    with pytest.raises(InvalidInput, match=r"image of shape \[2, 2\]"):
        columns.of_record((Column("x", "image", "", (2, 2)),), 2)


def test_a_number_of_records_that_is_refused_counts_as_one_request():
    assert [Entry(b"1-0", "u", b"", records=number).record_count for number in (b"4096", b"4097", b"x")] == [4096, 1, 1]


@pytest.mark.parametrize("sizes", [[4], [1, 3], [2, 1, 1]])
def test_outputs_of_equal_shapes_come_back_stacked(sizes):
    numbers = iter(range(4))
    parts = []
    for size in sizes:
        part = [next(numbers) for _ in range(size)]
        y, texts = np.repeat(np.array(part, "f4")[:, None], 3, axis=1), np.array([f"t{n}" for n in part], object)
        parts.append([y, texts])
    fields = to_fields(columns.stacked(["y", "t"], parts))
    for index, outcome in enumerate(columns.outcomes(fields, 4)):
        assert outcome["y"].tolist() == [index] * 3 and outcome["t"].item() == f"t{index}"
    assert columns.stacked(["y"], [[np.zeros((1, 2))], [np.zeros((1, 3))]]) is None


def test_records_that_fail_or_differ_have_results_of_their_own():
    results = [
        encode_result(True, ["y"], [np.arange(2)]),
        encode_error(InferenceFailed("negative")),
        encode_result(True, ["y"], [np.arange(3)]),
    ]
    fields = to_fields(columns.joined(results))
    assert fields[columns.EACH.encode()] == b"1"
    first, second, third = columns.outcomes(fields, 3)
    assert first["y"].tolist() == [0, 1] and third["y"].tolist() == [0, 1, 2]
    assert isinstance(second, InferenceFailed) and str(second) == "negative"


def test_the_error_of_a_record_names_the_version_that_answered():
    one = encode_result(True, ["y"], [np.zeros(1)])
    fields = columns.joined([one, encode_error(InferenceFailed("no"))]) | {"version": "7"}
    _, failed = columns.outcomes(to_fields(fields), 2)
    assert failed.version == "7"
    whole = columns.outcomes(to_fields(encode_error(InferenceFailed("no")) | {"version": "7"}), 2)
    assert [outcome.version for outcome in whole] == ["7", "7"]


def test_an_entry_that_fails_as_a_whole_fails_each_record():
    outcomes = columns.outcomes(to_fields(encode_error(InvalidInput("no"))), 3)
    assert [str(outcome) for outcome in outcomes] == ["no"] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
