"""Requests that are answered later: what no slot takes is refused at once, and nothing else."""

import json

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.frontend.api.requests import fitting
from cluster_serving.job.options import ImageOptions
from cluster_serving.job.preprocessing import Preprocessor
from cluster_serving.job.ways import CONVERSION, KINDS
from cluster_serving.protocol.errors import InvalidInput
from cluster_serving.protocol.inputs import Image, SparseTensor
from cluster_serving.protocol.keys import JobKeys
from cluster_serving.protocol.slots import SlotReport, TensorSpec
from cluster_serving.protocol.tensors import Encoded, encode

SIZES = st.sampled_from([None, 0, 1, 2])
SHAPES = st.none() | st.lists(SIZES, max_size=3).map(tuple)
SPECS = st.lists(
    st.builds(
        TensorSpec,
        st.sampled_from("ab"),
        st.sampled_from(["float32", "int64", "str", ""]),
        SHAPES,
        column=st.sampled_from(["", "", "yes"]),
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda spec: spec.name,
)
VALUES = st.one_of(
    st.lists(st.integers(0, 2), max_size=3).map(lambda shape: np.zeros(shape, "f4")),
    st.lists(st.integers(0, 2), max_size=2).map(lambda shape: np.full(shape, "1", object)),
    st.just(Image(b"x")),
    st.just(SparseTensor(np.zeros((1, 1), "i8"), np.ones(1, "f4"), (2,))),
)
RECORDS = st.dictionaries(st.sampled_from("abA"), VALUES, min_size=1, max_size=2)


@given(SPECS, RECORDS)
def test_a_slot_refuses_all_that_is_refused_here(specs, record):
    (fitted,) = fitting.checked([Encoded(encode(record))], specs)
    if isinstance(fitted, InvalidInput):
        for batched in (False, True):
            preprocessor = Preprocessor(
                specs, "CHW", ImageOptions(), batched, kinds=KINDS, conversion=CONVERSION, most_rows=None
            )
            with pytest.raises(InvalidInput):
                preprocessor.prepare(record)


REPORT = SlotReport("", "ready", "Echo", (TensorSpec("x", "float32", (None, 4)),))


@pytest.mark.parametrize(
    ("instances", "told"),
    [
        ([{"x": [1, 2, 3]}], "instances[0]: input 'x' is float32[3], but the model expects x: float32[4]"),
        ([[1, 2, 3, 4], [1, 2]], "instances[1]: input 'x' is float32[2], but the model expects x: float32[4]"),
        ([[1, 2], [1, 2]], "instances[0]: input 'x' is float32[2], but the model expects x: float32[4]"),
        ([{"x": {"b64": "AAAA"}}], "instances[0]: input 'x' is an image, but the model expects x: float32[4]"),
        ([{"x": [1, 2, 3, 4], "y": 1}], "instances[0]: 'y' is unknown: the request has the inputs 'x', 'y'; the model"),
        ([{"x": [1, 2, 3, 4]}, {"x": [[1, 2, 3, 4]]}], ""),
        ([{"z": [1, 2, 3, 4]}], ""),
    ],
)
def test_the_error_names_instance_input_and_what_the_model_expects(instances, told):
    body = json.dumps({"instances": instances}).encode()
    errors = [one for one in fitting.read(body, 9, {"": REPORT}).records if isinstance(one, InvalidInput)]
    assert [str(error)[: len(told)] for error in errors] == [told] * bool(told)


def test_nothing_of_a_refused_request_is_queued(serve, report, db, job):
    report(("x", "float32", (None, 4)))
    answer = httpx.post(f"{serve().url}/v1/requests", json={"instances": [[1, 2, 3, 4], [1]]}, timeout=30)
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_INPUT")
    assert not db.exists(*JobKeys(job).streams)


def test_a_request_for_a_job_that_does_not_serve_waits_whatever_its_shape(serve, report, db, job):
    """The next start may bring another model."""
    report(("x", "float32", (None, 4)), state="stopped")
    answer = httpx.post(f"{serve().url}/v1/requests", json={"instances": [[1, 2]]}, timeout=30)
    assert answer.status_code == 202
    db.delete(*JobKeys(job).streams)
