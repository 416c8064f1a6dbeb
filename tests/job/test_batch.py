"""Merging, splitting and isolating."""

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.job.batch import BatchMemory, group_by_shape, isolate, merge, split
from cluster_serving.protocol.errors import InferenceFailed, InvalidInput


def memories(count):
    return [BatchMemory(None) for _ in range(count)]


@given(st.integers(1, 5), hnp.array_shapes(min_dims=0, max_dims=3, max_side=3))
def test_splitting_undoes_merging(count, shape):
    records = [[np.full(shape, index), np.full((2,), -index)] for index in range(count)]
    merged = merge(records, memories(2), already_batched=False)
    assert merged[0].shape == (count, *shape)
    for record, parts in zip(records, split(merged, [1] * count, already_batched=False), strict=True):
        assert all(np.array_equal(before, after) for before, after in zip(record, parts, strict=True))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_records_that_bring_their_own_batch_keep_it(rows):
    records = [[np.full((count, 3), index)] for index, count in enumerate(rows)]
    parts = split(merge(records, memories(1), already_batched=True), rows, already_batched=True)
    assert all(np.array_equal(before[0], after[0]) for before, after in zip(records, parts, strict=True))


def test_records_of_different_shape_are_never_merged():
    records = [[np.zeros(2)], [np.zeros(3)], [np.zeros(2)]]
    assert group_by_shape(records) == [[0, 2], [1]]


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_only_the_culprits_of_a_failing_batch_fail(culprits):
    def run(items):
        if any(culprits[item] for item in items):
            raise ValueError("bad record")
        return [item * 10 for item in items]

    results = isolate(run, range(len(culprits)))
    for index, culprit in enumerate(culprits):
        if culprit:
            assert isinstance(results[index], InferenceFailed)
            assert "ValueError: bad record" in str(results[index])
        else:
            assert results[index] == index * 10


def test_a_typed_error_keeps_its_type():
    def run(items):
        raise InvalidInput("too long")

    assert [type(result) for result in isolate(run, [1, 2])] == [InvalidInput, InvalidInput]
