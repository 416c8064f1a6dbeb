"""Which answers count as different."""

import numpy as np
import pytest

from cluster_serving.protocol import columns
from cluster_serving.protocol.errors import InferenceFailed
from cluster_serving.protocol.figures.tally import LATENCY_US, Tally, difference
from cluster_serving.protocol.results import encode_error, encode_ranked, encode_result, mark_json, to_fields


def fields(*outputs, names="yz", native=True):
    return to_fields(encode_result(native, list(names)[: len(outputs)], outputs))


def floats(*values, dtype="f4"):
    return np.array(values, dtype)


def document(text):
    return to_fields(mark_json(encode_result(True, ["y"], [np.array(text, object)]), ["y"]))


def ranked(*pairs):
    return to_fields(encode_ranked(True, ["y"], [list(pairs)]))


@pytest.mark.parametrize(
    ("serving", "shadow"),
    [
        (fields(floats(1000.5, np.nan, np.inf)), fields(floats(1001, np.nan, np.inf))),
        (fields(floats(0.5), native=False), fields(floats(0.5002), native=False)),
        (fields(floats(1), floats(2), names="yz"), fields(floats(1), floats(2), names="yz")),
        (document('{"label": "cat", "score": 0.9001}'), document('{"score": 0.9, "label": "cat"}')),
        (ranked((7, 0.9), (2, 0.1)), ranked((7, 0.9001), (2, 0.0999))),
    ],
)
def test_answers_are_alike(serving, shadow):
    assert difference(serving, shadow)[0] == ""


@pytest.mark.parametrize(
    ("serving", "shadow", "told"),
    [
        (fields(floats(1, 2)), fields(floats(1, 3.5)), "output y: 1 of 2 numbers differ, by up to 1.5"),
        (fields(floats(1.5)), fields(floats(np.nan)), "1 of 1 numbers differ"),
        (fields(floats(5000), native=False), fields(floats(5001), native=False), "numbers differ, by up to 1"),
        (fields(floats(2**53, dtype="i8")), fields(floats(2**53 + 1, dtype="i8")), "1 of 1 numbers differ, by up to 1"),
        (fields(floats(0, dtype="u8")), fields(floats(2**64 - 1, dtype="u8")), "by up to 1.84467e+19"),
        (
            fields(floats(1 + 2j, dtype="c8")),
            fields(floats(1 - 99j, dtype="c8")),
            "1 of 1 numbers differ, by up to 101",
        ),
        (fields(floats(1)), fields(floats(1, dtype="f8")), "float32[1] became float64[1]"),
        (fields(floats(1)), fields(floats(1, 2)), "float32[1] became float32[2]"),
        (fields(floats(1), names="y"), fields(floats(1), names="z"), "the outputs y became z"),
        (document('{"label": "cat"}'), document('{"label": "dog"}'), "texts differ"),
        (ranked((1000, 0.9)), ranked((1001, 0.9)), "output y (classes): 1 of 1 numbers differ"),
        (fields(floats(1)), {b"value": b"?"}, "an answer cannot be read"),
    ],
)
def test_answers_differ(serving, shadow, told):
    assert told in difference(serving, shadow)[0]


BAD = encode_error(InferenceFailed("no"))


def records(*values):
    """The answer to a request of many records, of which those without a value have failed."""
    results = [BAD if value is None else encode_result(True, ["y"], [floats(value)]) for value in values]
    return to_fields(columns.joined(results) if None in values else columns.stacked(["y"], [[floats(*values)]]))


@pytest.mark.parametrize(
    ("serving", "shadow", "told", "failures"),
    [
        (records(1, 2, None), records(1, 2.001, None), "", {}),
        (records(1, 2, None), records(1, 5, None), "record 1: output y: 1 of 1 numbers differ, by up to 3", {}),
        (records(1, 2, 3), records(1, 2, None), "0 failed records became 1", {"shadow_failures": 1}),
        (records(1, None, 3), records(1, 2, 3), "1 failed records became 0", {"serving_failures": 1}),
        (records(1, None, 3), to_fields(BAD), "no error became INFERENCE_FAILED", {}),
    ],
)
def test_records_of_a_request_are_compared_one_by_one(serving, shadow, told, failures):
    tally = Tally()
    tally.add({**serving, LATENCY_US.encode(): b"1"}, shadow, 1)
    assert difference(serving, shadow)[0] == told
    assert {name: count for name, count in tally.counts.items() if name.endswith("_failures")} == failures
    assert tally.counts["compared"] == 1 and tally.counts["differing"] == bool(told)
