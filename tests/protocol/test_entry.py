"""Entries and result hashes."""

import numpy as np
import pytest

from cluster_serving.protocol import entry
from cluster_serving.protocol.entry import Entry
from cluster_serving.protocol.errors import ERRORS, InferenceFailed, InvalidInput, ServingError
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.results import decode_outputs, encode_error, encode_ranked, encode_result


def as_read(fields):
    """A hash as Redis gives it back."""
    return {key.encode(): value.encode() if isinstance(value, str) else value for key, value in fields.items()}


def test_an_entry_without_uri_cannot_be_answered():
    for fields in ({b"foo": b"bar"}, {b"uri": b"x" * 70_000}):
        with pytest.raises(InvalidInput, match="expected data and a uri"):
            entry.parse_entry(b"1-0", fields)


@pytest.mark.parametrize("size", [0, 4097])
def test_a_uri_that_only_original_clients_send_can_be_answered(size):
    with pytest.raises(InvalidInput, match=f"the uri has {size} bytes; expected 1 to 4096"):
        entry.parse_entry(b"1-0", {b"uri": b"x" * size, b"data": b"x"}).decode()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (Entry(b"1-0", "u", b""), "missing or empty"),
        (Entry(b"1-0", "u", b"x", b"json"), "'serde' is b'json'"),
        (Entry(b"1-0", "u", b"x", deadline=b"soon"), "'deadline' is b'soon'"),
        (Entry(b"1-0", "u", b"x", deadline=b"9" * 16), "in at most 15 digits"),
    ],
)
def test_an_entry_that_cannot_be_read_says_why(entry, message):
    with pytest.raises(InvalidInput, match=message):
        entry.decode()


@pytest.mark.parametrize("uri", ["", None, 7, "x" * 5000, "\udc80"])
def test_a_uri_is_a_non_empty_string(uri):
    with pytest.raises(InvalidInput, match="expected a string of 1 to 4096 bytes"):
        entry.request_fields(uri, {"x": np.zeros(1)})


def test_a_uri_may_hold_colons_and_a_job_name_may_hold_wildcards():
    keys = JobKeys("a*b")
    for key in keys.results("x:y:z"):
        assert keys.uri_of(key) == "x:y:z"
    assert keys.uri_of(b"another a*b:slots") is None
    assert keys.result_pattern == r"*a\*b:*"


@pytest.mark.parametrize("native", [True, False])
def test_results_come_back_in_the_encoding_of_the_request(native):
    outputs = [np.array([1.5, 2.5], "f4"), np.array([[1.0]], "f4")]
    fields = as_read(encode_result(native, ["a", "b"], outputs))
    assert (b"serde" in fields) == native
    first, second = decode_outputs(fields).values()
    assert first.tolist() == [1.5, 2.5]
    assert second.ravel().tolist() == [1.0]


def test_outputs_without_a_name_are_not_dropped():
    with pytest.raises(ValueError, match="there are 2 outputs for the names a"):
        encode_result(True, ["a"], [np.zeros(1), np.zeros(1)])


@pytest.mark.parametrize("native", [True, False])
def test_rankings_are_pairs_for_our_client_whoever_asked(native):
    # The floats have the digits of float32, and no further ones.
    for rankings in ([[(4, 5.0), (3, 0.3529831)]], [[(4, 5.0), (3, 4.0)], [(0, 1e-10)]]):
        assert decode_outputs(as_read(encode_ranked(native, ["a", "b"][: len(rankings)], rankings))) == rankings


def test_the_text_of_a_ranking_stands_beside_the_array_for_original_clients():
    assert encode_ranked(False, ["y"], [[(4, 5.0), (3, 4.0)]])["topN"] == "[[4,5.0][3,4.0]]"
    assert encode_ranked(False, ["y"], [[(903, 0.1306194)]])["topN"] == "[[903,0.1306194]]"


@pytest.mark.parametrize(
    ("number", "text"), [(1e-4, "1.0E-4"), (0.001, "0.001"), (1e7, "1.0E7"), (5, "5.0"), (float("nan"), "NaN")]
)
def test_numbers_in_texts_are_written_as_java_does(number, text):
    assert encode_ranked(False, ["y"], [[(0, number)]])["topN"] == f"[[0,{text}]]"


@pytest.mark.parametrize("error", ERRORS.values())
def test_every_error_keeps_its_class_and_message(error):
    fields = encode_error(error("what went wrong"))
    assert fields["value"] == "NaN"
    with pytest.raises(error, match="what went wrong") as caught:
        decode_outputs(as_read(fields))
    assert type(caught.value) is error


def test_an_error_of_a_newer_server_is_still_an_error():
    with pytest.raises(ServingError, match="from the future"):
        decode_outputs({b"code": b"FUTURE", b"error": b"from the future", b"value": b"NaN"})


def test_errors_have_a_status_for_every_front_end():
    assert InferenceFailed.http_status == 500
    assert InvalidInput.grpc_status == "INVALID_ARGUMENT"
    assert len({error.code for error in ERRORS.values()}) == len(ERRORS)
