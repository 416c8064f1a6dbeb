"""Batches: merge, split, isolate, and their memory."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.job.batch import BatchMemory, SuspectItem, gather, group_by_shape, isolate, merge, search, split
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


FLOAT = np.dtype(np.float32)


def records(count, dtype=np.float32, shape=(2, 3)):
    arrays = [np.full(shape, index, dtype) for index in range(count)]
    for array in arrays:
        array.flags.writeable = False
    return arrays


def address(batch):
    return batch.__array_interface__["data"][0]


def test_batches_share_memory_that_is_no_longer_used():
    memory = BatchMemory(FLOAT)
    first = address(memory.join(records(4), already_batched=False))
    for count in (4, 1, 3):
        batch = memory.join(records(count), already_batched=False)
        assert address(batch) == first
        np.testing.assert_array_equal(batch, np.stack(records(count)))
        del batch


@pytest.mark.parametrize("part", [lambda batch: batch, lambda batch: batch[1:, :, 0], lambda batch: batch.T.ravel()])
def test_a_batch_in_use_is_not_overwritten(part):
    memory = BatchMemory(FLOAT)
    batch = memory.join(records(4), already_batched=False)
    kept = part(batch)
    expected = kept.copy()
    del batch
    other = memory.join([array + 7 for array in records(4)], already_batched=False)
    np.testing.assert_array_equal(kept, expected)
    np.testing.assert_array_equal(other, np.stack(records(4)) + 7)


def test_pixels_become_the_dtype_of_the_model():
    batch = BatchMemory(FLOAT).join([array.T for array in records(3, np.uint8)], already_batched=False)
    assert (batch.dtype, batch.shape, batch.flags.c_contiguous) == (FLOAT, (3, 3, 2), True)
    np.testing.assert_array_equal(batch[:, 0, 0], [0, 1, 2])


def test_records_with_a_batch_dimension_are_joined_along_it():
    arrays = [np.full((rows, 2), rows, np.uint8) for rows in (1, 3, 2)]
    batch = BatchMemory(FLOAT).join(arrays, already_batched=True)
    np.testing.assert_array_equal(batch, np.concatenate(arrays))
    assert batch.dtype == FLOAT


def test_a_single_record_that_a_model_may_write_to_is_not_copied():
    record = np.zeros((2, 3), np.float32)
    assert np.shares_memory(BatchMemory(FLOAT).join([record], already_batched=False), record)
    record.flags.writeable = False
    assert not np.shares_memory(BatchMemory(FLOAT).join([record], already_batched=False), record)


def test_texts_are_joined_as_objects():
    batch = BatchMemory(None).join([np.array(["a", "b"], object), np.array(["c", "d"], object)], already_batched=False)
    assert batch.tolist() == [["a", "b"], ["c", "d"]]


def test_large_memory_is_given_back(monkeypatch):
    monkeypatch.setattr("cluster_serving.job.batch._MAX_KEPT_BYTES", 100)
    memory = BatchMemory(FLOAT)
    batch = memory.join(records(100), already_batched=False)
    np.testing.assert_array_equal(batch, np.stack(records(100)))
    assert len(memory._memory) == 0


def test_rows_that_make_no_batch_are_refused():
    output = gather([np.zeros((2, 4)), np.zeros((5, 4))])
    with pytest.raises(InferenceFailed, match=r"shapes \[2, 4\], \[5, 4\], which make no batch"):
        split([output], [2], already_batched=True)
    ((filled,),) = split([output], [2], already_batched=True, fill=True)
    assert filled.shape == (2, 5, 4)


class Known(InferenceFailed):
    """A failure that tells its culprit."""

    def __init__(self, index):
        super().__init__("wrong")
        self.index = index


def steps(run, count):
    """The results of a search by item, and the sizes of its calls."""
    sizes, found = [], {}

    def counted(items):
        sizes.append(len(items))
        return run(items)

    for step in search(counted, range(count)):
        found |= step or {}
    return found, sizes


def test_parts_that_are_computed_come_before_the_search_ends():
    def run(items):
        if 13 in items:
            raise ValueError("unlucky")
        return list(items)

    found, answered_after = {}, {}
    for number, step in enumerate(search(run, range(16))):
        answered_after |= dict.fromkeys((step or {}).keys() - found.keys(), number)
        found |= step or {}
    assert sorted(found) == [*range(16)]
    assert isinstance(found[13], InferenceFailed)
    # The first half is known after the second call.
    assert answered_after[0] < answered_after[12]


def test_a_failure_that_tells_its_culprit_costs_one_more_call():
    def run(items):
        for position, item in enumerate(items):
            if item in (3, 7):
                raise Known(position)
        return list(items)

    found, sizes = steps(run, 10)
    assert sizes == [10, 9, 8]
    assert [item for item, result in found.items() if isinstance(result, Known)] == [3, 7]


def test_errors_in_the_place_of_results_cost_nothing():
    found, sizes = steps(lambda items: [InvalidInput("bad") if item == 2 else item for item in items], 4)
    assert sizes == [4]
    assert isinstance(found[2], InvalidInput)


def test_suspects_of_a_run_are_tried_again_as_it_left_them():
    def run(items):
        if len(items) > 1:
            return [SuspectItem(InferenceFailed("together"), f"{item}, prepared") for item in items]
        return list(items)

    found, _ = steps(run, 2)
    assert found == {0: "0, prepared", 1: "1, prepared"}
