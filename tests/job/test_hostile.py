"""Hostile requests: their sender gets one of our errors, and no other request is concerned."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster_serving.client.result import read_result
from cluster_serving.protocol import tensors
from cluster_serving.protocol.errors import ERRORS, MAX_MESSAGE_BYTES
from cluster_serving.protocol.inputs import Image, SparseTensor
from cluster_serving.protocol.original import arrow as original_arrow
from cluster_serving.protocol.original import image_stream
from tests.support.fixtures.predictor import predictor, save_doubling
from tests.support.fixtures.serving_path import answers
from tests.support.payloads import hostile

VECTOR = np.array([1, 2, 3], "f4")


@pytest.fixture(scope="module")
def doubling(tmp_path_factory):
    """`x` float32 [?, 3] → twice that."""
    folder = tmp_path_factory.mktemp("doubling")
    save_doubling(folder, 3)
    return predictor(folder, "")


def check(model, *entries):
    """Send entries between two good ones; return the code of each answer, or "" for a result."""
    good = {b"uri": b"before", b"serde": b"arrow", b"data": tensors.encode({"x": VECTOR})}
    found = answers(model, [good, *entries, good | {b"uri": b"after"}])
    for uri in ("before", "after"):
        result = read_result({key.encode(): as_bytes(value) for key, value in found.pop(uri).fields.items()})
        np.testing.assert_array_equal(result, VECTOR * 2)
    codes = []
    for entry in entries:
        if b"uri" in entry:
            answer = found.pop(entry[b"uri"].decode("utf8", "surrogateescape"))
            fields = answer.fields
            codes.append(fields.get("code", ""))
            if codes[-1]:
                assert codes[-1] in ERRORS
                assert fields["value"] == "NaN"
                assert 0 < len(as_bytes(fields["error"])) <= MAX_MESSAGE_BYTES
            if image_stream.is_early(image_stream.STREAM, answer.entry.serde):
                image_stream.early_result(fields)
    assert not found
    return codes


def as_bytes(value):
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("group", hostile.GROUPS)
def test_a_hostile_request_is_refused_alone(doubling, group):
    for name, fields in hostile.GROUPS[group]():
        (code,) = check(doubling, fields | {b"uri": b"bad"})
        harmless = group == "fields" and name.startswith(("reply_to", "deadline", "priority"))
        allowed = {"", "INVALID_INPUT"} if harmless or "of nan" in name or "inf" in name or "NaN" in name else set()
        assert code in (allowed or {"INVALID_INPUT", "REQUEST_TOO_LARGE"}), (name, code)


def test_huge_and_damaged_images_are_refused_by_a_model_of_any_size(tmp_path):
    save_doubling(tmp_path, 3, -1, -1)
    model = predictor(tmp_path, "")
    good = {b"uri": b"good", b"serde": b"arrow", b"data": tensors.encode({"x": np.zeros((3, 2, 2), "f4")})}
    for name, data in hostile.huge_images().items():
        entry = {b"uri": b"bad", b"serde": b"arrow", b"data": tensors.encode({"x": Image(data)})}
        found = answers(model, [entry, good])
        assert found["bad"].fields["code"] == "REQUEST_TOO_LARGE", name
        assert "40000 x 40000 pixels" in found["bad"].fields["error"]
        assert "code" not in found["good"].fields


# Arbitrary entries, and good ones with a few wrong bytes

SPARSE = SparseTensor(np.array([[0, 2]]), np.array([1, 2], "f4"), (3,))
GOOD = [
    {b"serde": b"arrow", b"data": tensors.encode({"x": VECTOR})},
    {b"serde": b"arrow", b"data": tensors.encode({"x": SPARSE})},
    {b"serde": b"arrow", b"data": tensors.encode({"x": np.array(["a", "b", "c"], object)})},
    {b"serde": b"arrow", b"data": tensors.encode({"x": Image(b"\x89PNG\r\n\x1a\n" + bytes(30))})},
    {b"serde": b"stream", b"data": b'{"instances": [{"x": [1, 2, 3]}]}'},
    {b"serde": b"stream", b"data": b'{"instances": [{"x": {"shape": [3], "data": [1], "indices": [[0]]}}]}'},
]
RAW = [
    base64.b64decode(original_arrow.encode_request({"x": value}))
    for value in (VECTOR, SPARSE, Image(b"\xff\xd8\xff" * 9))
]
MUTATION = st.tuples(st.integers(0, 1 << 20), st.binary(max_size=8), st.integers(0, 16))


def mutated(data: bytes, mutations: list[tuple[int, bytes, int]]) -> bytes:
    """Return bytes with some replaced, inserted or removed."""
    for position, inserted, removed in mutations:
        at = position % (len(data) + 1)
        data = data[:at] + inserted + data[at + removed :]
    return data


mutations = st.lists(MUTATION, max_size=4)
almost_good = st.one_of(
    st.builds(lambda entry, m: entry | {b"data": mutated(entry[b"data"], m)}, st.sampled_from(GOOD), mutations),
    st.builds(lambda raw, m: {b"data": base64.b64encode(mutated(raw, m))}, st.sampled_from(RAW), mutations),
    st.builds(lambda raw, m: {b"image": base64.b64encode(mutated(raw, m))}, st.sampled_from(RAW), mutations),
)
anything = st.fixed_dictionaries(
    {b"data": st.binary(max_size=200)},
    optional={b"serde": st.sampled_from([b"arrow", b"stream", b"image", b"", b"x"]) | st.binary(max_size=9)},
)
other_fields = st.dictionaries(
    st.sampled_from([b"reply_to", b"deadline", b"priority", b"image", b"\xff"]), st.binary(max_size=30), max_size=2
)
uris = st.binary(max_size=20) | st.just(b"x" * 5000)
entries = st.builds(
    lambda entry, others, uri: others | entry | {b"uri": uri}, almost_good | anything, other_fields, uris
).filter(lambda entry: entry[b"uri"] not in (b"before", b"after"))


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(entries, max_size=3, unique_by=lambda entry: entry[b"uri"]))
def test_any_entry_is_answered_and_concerns_no_other_request(doubling, sent):
    check(doubling, *sent)
