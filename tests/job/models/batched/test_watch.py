"""The watch over shared calls, on functions that stand for engines and that no proof at load refutes."""

from __future__ import annotations

import numpy as np
import pytest

from cluster_serving.job.models.base import Model, TensorSpec
from cluster_serving.job.models.batched.model import BatchedModel
from cluster_serving.job.models.batched.watch import Watch
from cluster_serving.protocol.figures.counts import Counts

MAGIC = np.float32(123.25)
"""A value that no proof tries."""


class Function(Model):
    """A function of one tensor; counts the records of its calls."""

    engine = "Fake"

    def __init__(self, run, dtype="float32"):
        self.inputs = [TensorSpec("x", dtype, (None, 4))]
        self.outputs = [TensorSpec("y", "", None)]
        self._compute = run
        self.calls = []

    def _run(self, inputs):
        self.calls.append(len(inputs[0]))
        return [self._compute(*inputs)]


class Served:
    """A watched model that is called as a slot does: the watch looks after the answers."""

    def __init__(self, run, dtype="float32", computed_s=0.0):
        self.counts = Counts()
        self.watch = Watch(self.counts)
        self.engine = Function(run, dtype)
        self.model = BatchedModel(self.engine)
        self.model.prove()
        assert not self.model.one_by_one
        self.model.watch_with(self.watch)
        self.watch.computed_s = computed_s
        self.engine.calls.clear()

    def __call__(self, x):
        (answers,) = self.model.predict([x])
        self.watch.check(lambda function: function())
        return answers

    @property
    def verdicts(self):
        taken = self.counts.take()
        return {name.partition(":")[2]: count for name, count in taken.items() if name.startswith("watched_records")}


def records(count, seed=0):
    return np.random.default_rng(seed).normal(0, 1, (count, 4)).astype(np.float32)


def with_magic(count):
    x = records(count)
    x[count // 2, 0] = MAGIC
    return x


def mixing_where_magic(x):
    return x * 2 + np.where((x == MAGIC).any(), x.sum(0), np.float32(0))


def test_a_dependence_that_only_certain_values_have_ends_sharing():
    served = Served(mixing_where_magic)
    served(records(5))
    assert not served.watch.ended
    x = with_magic(5)
    served(x)
    assert served.watch.ended == "the watch found that output 'y' of a record depends on the others in its batch"
    assert served.model.one_by_one == served.watch.ended
    assert served.verdicts == {"same": 1, "differs": 1}
    served.engine.calls.clear()
    np.testing.assert_array_equal(served(x), np.concatenate([mixing_where_magic(row[np.newaxis]) for row in x]))
    assert served.engine.calls == [1] * 5


def test_records_of_the_first_calls_are_computed_again_and_then_fewer():
    served = Served(np.sin)
    watched = []
    for call in range(1, 600):
        served.engine.calls.clear()
        served(records(3, call))
        assert served.engine.calls in ([3], [3, 1])
        if len(served.engine.calls) == 2:
            watched.append(call)
    assert watched == [1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256, 512]
    assert not served.watch.ended


@pytest.mark.parametrize(("computed_s", "watched"), [(0.0, 14), (1e9, 24)])
def test_later_one_in_a_thousand_is_computed_again_unless_that_takes_too_long(computed_s, watched):
    served = Served(np.sin, computed_s=computed_s)
    x = records(2)
    for _ in range(10_512):
        served(x)
    assert 0.8 * watched <= served.verdicts["same"] <= 1.25 * watched


def test_a_record_that_has_its_call_for_itself_is_not_watched():
    served = Served(np.sin)
    served(records(1))
    assert served.engine.calls == [1]
    assert not served.watch.is_due


def test_kernels_that_round_in_another_way_are_no_difference():
    def rounding(x):
        return x * np.float32(1 + 1e-6 * len(x))

    served = Served(rounding)
    for call in range(8):
        served(records(4, call))
    assert served.verdicts == {"same": 8}


def test_a_label_that_the_last_digits_of_the_inputs_change_is_no_difference():
    def label(x):
        # A tie, which the kernel for several records decides in another way.
        return (x[:, 0] * np.float32(1 + 2e-7 * (len(x) > 1)) > x[:, 1]).astype(np.int64)

    served = Served(label)
    x = records(4)
    x[:, 0] = x[:, 1] = 1
    for _ in range(8):
        served(x)
    assert served.verdicts == {"rounding": 8}
    assert not served.watch.ended


def test_a_label_that_depends_on_the_size_of_the_call_alone_ends_sharing():
    served = Served(lambda x: np.where((x[:, 0] == MAGIC) & (len(x) > 1), 7, np.argmax(x, 1)))
    x = records(4)
    x[:, 0] = MAGIC
    served(x)
    assert served.watch.ended


def test_without_digits_in_the_inputs_a_difference_of_size_counts_the_second_time():
    """As of token ids: their label may be a tie, which nothing tells."""
    served = Served(lambda x: np.where((x[:, 0] == 777) & (len(x) > 1), x[:, 1] + 1, x[:, 1]), dtype="int64")
    ids = np.full((4, 4), 777)
    served(ids)
    assert not served.watch.ended
    served(ids)
    assert served.watch.ended
    assert served.verdicts == {"doubtful": 2}


def test_ids_that_depend_on_other_records_end_sharing_at_once():
    served = Served(lambda x: x[:, :1] + (x == 777).any() * x.sum(), dtype="int64")
    ids = np.arange(16).reshape(4, 4)
    ids[2, 0] = 777
    served(ids)
    assert served.verdicts == {"differs": 1}


def test_another_size_of_output_ends_sharing():
    served = Served(lambda x: x[:, : 2 + 2 * ((x == MAGIC).any() and len(x) > 1)])
    served(with_magic(4))
    assert served.model.one_by_one


def test_a_record_that_cannot_be_computed_again_says_nothing():
    def picky(x):
        if len(x) == 1 and (x == MAGIC).any():
            raise ValueError("not alone")
        return np.sin(x)

    served = Served(picky)
    x = records(4)
    x[:, 0] = MAGIC
    served(x)
    assert served.verdicts == {"failed": 1}
    assert not served.watch.ended


def test_the_end_of_sharing_is_the_same_for_a_copy_that_is_loaded_later():
    watch = Watch(Counts())
    watch.end("another slot found it")
    model = BatchedModel(Function(np.sin))
    model.prove()
    model.watch_with(watch)
    model.predict([records(3)])
    assert model.one_by_one == "another slot found it"
    assert model._model.calls[-3:] == [1, 1, 1]


@pytest.mark.parametrize("part", [1e-3, 0.05, 1])
def test_a_dependence_may_be_small_or_in_one_column_of_small_numbers(part):
    def run(x):
        y = x * np.array([1e4, 1, 1, 1e-3], np.float32)
        y[:, 3] *= 1 + part * ((x == MAGIC).any() and len(x) > 1 and x.max() / MAGIC)
        return y

    served = Served(run)
    x = records(5)
    served(x)
    assert served.verdicts == {"same": 1}
    x[2, 1] = MAGIC
    for _ in range(8):
        served(x)
    assert served.watch.ended


def test_numbers_that_are_none_are_compared():
    served = Served(lambda x: np.where((x == MAGIC).any() & (x > 0), np.nan, x))
    x = np.abs(records(5))
    x[0] = [-np.inf, np.nan, np.inf, 0]
    served(x)
    assert served.verdicts == {"same": 1}
    x[2, 1] = MAGIC
    for _ in range(8):
        served(x)
    assert served.watch.ended


@pytest.mark.parametrize("dtype", ["float16", "float64", "complex64", "int8"])
def test_outputs_of_each_type_are_compared(dtype):
    served = Served(lambda x: (20000 * np.abs(x).clip(0, 3)).astype(dtype) * np.asarray(not (x == MAGIC).any(), dtype))
    served(records(6))
    assert served.verdicts == {"same": 1}
    for _ in range(8):
        served(with_magic(6))
    assert served.watch.ended


def test_texts_are_compared():
    served = Served(
        lambda x: np.where((x == MAGIC).any(), "mixed", np.where(x[:, :1] > 0, "more", "less")).astype(object)
    )
    served(records(6))
    assert served.verdicts == {"same": 1}
    for _ in range(8):
        served(with_magic(6))
    assert served.watch.ended
