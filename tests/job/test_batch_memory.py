"""Batches in memory that is used again."""

import numpy as np
import pytest

from cluster_serving.job.batch import BatchMemory

FLOAT = np.dtype(np.float32)


def records(count, dtype=np.float32, shape=(2, 3)):
    arrays = [np.full(shape, index, dtype) for index in range(count)]
    for array in arrays:
        array.flags.writeable = False
    return arrays


def address(batch):
    return batch.__array_interface__["data"][0]


def test_batches_share_memory_once_nobody_uses_it():
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


def test_pixels_become_what_the_model_takes():
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
    monkeypatch.setattr("cluster_serving.job.batch._MOST_KEPT", 100)
    memory = BatchMemory(FLOAT)
    batch = memory.join(records(100), already_batched=False)
    np.testing.assert_array_equal(batch, np.stack(records(100)))
    assert len(memory._memory) == 0
