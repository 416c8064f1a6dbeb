"""Requests of several records in one entry, and their results."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.protocol import columns, tensors
from cluster_serving.protocol.entry import NATIVE, Entry, parse_entry, request_fields
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput
from cluster_serving.protocol.inputs import Image
from cluster_serving.protocol.results import encode_error, encode_result, to_fields


def record(number, shape=(2,), dtype="f4"):
    return {"x": np.full(shape, number, dtype), "name": np.array(f"n{number}", object)}


def entry_of(inputs, records):
    fields = request_fields("u", inputs, records=records)
    return parse_entry(b"1-0", {name.encode(): to_fields({name: fields[name]})[name.encode()] for name in fields})


def read(inputs, records):
    entry = entry_of(inputs, records)
    return columns.parts(*entry.decode(), entry.record_count)


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


def test_images_and_large_records_have_entries_of_their_own():
    large = np.zeros(columns.MOST_BYTES // 4 + 1, "f4")
    for records in ([{"x": Image(b"a")}, {"x": Image(b"b")}], [{"x": large}, {"x": large}]):
        found = columns.chunks(records, 8)
        assert [indices for indices, _ in found] == [[0], [1]]
        assert [inputs is each for (_, inputs), each in zip(found, records, strict=True)] == [True, True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"records": b"0"}, "expected a number from 1 to 4096"),
        ({"records": b"many"}, "expected a number from 1 to 4096"),
        ({"records": b"4097"}, "expected a number from 1 to 4096"),
        ({"records": b"3"}, r"input 'x' is a tensor of shape \[2, 2\]; expected a tensor or texts of 3 records"),
        ({"records": b"2", "reply_with": b"pieces"}, "without 'reply_with' 'pieces'"),
        ({"records": b"2", "serde": b"stream"}, "for requests with serde 'arrow'"),
    ],
)
def test_an_entry_that_is_no_column_is_refused(change, message):
    entry = Entry(b"1-0", "u", tensors.encode({"x": np.zeros((2, 2), "f4")}), NATIVE)._replace(**change)
    with pytest.raises(InvalidInput, match=message):
        columns.parts(*entry.decode(), entry.record_count)


def test_a_number_of_records_that_is_refused_counts_as_one_request():
    assert [Entry(b"1-0", "u", b"", records=number).record_count for number in (b"4096", b"4097", b"x")] == [4096, 1, 1]


def test_outputs_of_equal_shapes_come_back_stacked():
    rows = [[np.full(3, index, "f4"), np.array(f"t{index}", object)] for index in range(4)]
    fields = to_fields(columns.stacked(["y", "t"], rows))
    for index, outcome in enumerate(columns.outcomes(fields, 4)):
        assert outcome["y"].tolist() == [index] * 3 and outcome["t"].item() == f"t{index}"
    assert columns.stacked(["y"], [[np.zeros(2)], [np.zeros(3)]]) is None


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


def test_an_entry_that_fails_as_a_whole_fails_each_record():
    outcomes = columns.outcomes(to_fields(encode_error(InvalidInput("no"))), 3)
    assert [str(outcome) for outcome in outcomes] == ["no"] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
