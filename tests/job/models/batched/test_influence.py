"""Models whose rows depend on each other in ways that samples of values miss; and such that only look like it."""

from __future__ import annotations

import numpy as np
import pytest

from cluster_serving.job.models.batched.influence import apart
from cluster_serving.job.models.batched.model import BatchedModel
from tests.job.models.batched.test_model import Raw, batched, records

F = np.float32


def before(x):
    """The record before each one; nothing before the first."""
    return np.concatenate([np.zeros_like(x[:1]), x[:-1]])


def places(x):
    return np.arange(len(x), dtype=F)[:, np.newaxis]


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def column(x, values):
    y = np.repeat(x, 50, 1)
    y[:, 17] += values
    return y


DEPENDENT = {
    "the one before": lambda x: x + F(0.02) * before(x),
    "the one before, of a millionth": lambda x: x + F(1e-6) * before(x),
    "the one behind": lambda x: x + F(0.02) * before(x[::-1])[::-1],
    "the first": lambda x: x + F(1e-3) * x[:1],
    "a mean": lambda x: x + F(1e-4) * x.mean(0),
    "a maximum": lambda x: x + F(1e-4) * np.fmax.reduce(x, 0),
    "the loudest of all": lambda x: x + F(1e-3) * (np.nan_to_num(np.abs(x)).max() > 1e4),
    "neighbours, if the record is loud": lambda x: np.where(x > 500, x + F(1e-3) * before(x), x),
    "neighbours, if these are loud": lambda x: x + np.where(before(x) > 1e3, F(1e-3), F(0)),
    "neighbours, if these are very negative": lambda x: x + np.where(before(x) < -1e3, F(1e-3), F(0)),
    "neighbours that agree": lambda x: x + F(1e-3) * (x == before(x)),
    "one of many columns": lambda x: column(x, F(0.01) * before(x)[:, 0]),
    "the place": lambda x: x + F(1e-3) * places(x),
    "the place, by a ten-thousandth": lambda x: x + F(1e-4) * places(x),
    "the place, far behind": lambda x: x + F(1e-2) * (places(x) > 20),
    "the size": lambda x: x * F(1 + 1e-3 * len(x)),
    "the size, by a hundred-thousandth": lambda x: x * F(1 + 1e-5 * len(x)),
    "the size, of large calls": lambda x: x * F(1.001 if len(x) > 16 else 1),
    "the size, of some calls": lambda x: x * F(1.001 if 5 < len(x) < 20 else 1),
    "the size, of whole blocks": lambda x: x * F(1.001 if len(x) % 8 == 0 and len(x) < 32 else 1),
    "a few values of any record": lambda x: x + F(1e-3) * ((x > 0.5) & (x < 0.505)).any(0),
    "a few values of any other": lambda x: x + F(1e-3) * (((x > 0.5) & (x < 0.505)).sum(0) > 1),
    "very small numbers of any record": lambda x: x + F(0.1) * ((np.abs(x) < 1e-6) & (x != 0)).any(),
    "neighbours, if both are negative": lambda x: x + F(0.1) * ((x < 0) & (before(x) < 0)).all(1, keepdims=True),
    "room for some records of a kind": lambda x: x * (np.cumsum(x[:, :1] > 0.4, 0) <= 20),
    "ten places before": lambda x: x + F(1e-3) * np.concatenate([x[:10] * 0, x[:-10]]),
    "the mean, in calls of 21": lambda x: x + F(1e-3) * (x.mean(0) if len(x) == 21 else 0),
    "a missing number, which others replace": lambda x: np.where(np.isnan(x), np.nanmean(x), x),
    "a number that means a missing one": lambda x: np.where(x == -999, x[x != -999].sum(), x),
    "codes that are equal": lambda x: x + F(0.1) * ((x[:, None, 0] == x[:, 0]).sum(1) > 1)[:, None] * (x[:, :1] > 16),
    "one band, and another one of any other": (
        lambda x: x + F(0.01) * ((np.abs(x[:, :1] - 0.3) < 0.02) & (np.abs(x[:, 1] - 0.7) < 0.02).any())
    ),
    "small numbers, all of a large call": lambda x: x * F(1.01 if len(x) > 20 and (np.abs(x) < 0.05).all() else 1),
    "attention over the batch": lambda x: x + F(1e-3) * softmax(x @ x.T) @ x,
    "a rank in the batch": lambda x: np.argsort(np.argsort(x[:, 0])).astype(np.int64),
    "a label of whole numbers": lambda x: (x.sum(1) > x.sum()).astype(np.int64),
}
NUMBERS = {
    "whole numbers before": lambda x: x + before(x) // 2,
    "whole numbers with a gap of seven": lambda x: x + (x[:, None, 0] == x[:, 0] + 7).sum(0)[:, None],
    "whole numbers that agree": lambda x: x + (x == before(x)),
    "a large whole number anywhere": lambda x: x + (x > 1000).any(),
    "a whole number of few": lambda x: x + (x == 13).any(),
    "a negative whole number anywhere": lambda x: x + (x < 0).any(),
    "whole numbers of one digest": lambda x: (x[:, :1] * 2654435761 % 101 == x[:, 0] * 2654435761 % 101).sum(1),
    "a whole number at any place": lambda x: x * 10 + (x == 1).any(0),
}
INDEPENDENT = {
    "a network": lambda x: np.tanh(x @ np.ones((4, 8), F)),
    "probabilities": softmax,
    "a class": lambda x: x.argmax(1),
    "a normalization": lambda x: (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + F(1e-6)),
    "digits that the size changes": lambda x: x * F(1 + 1e-6 * len(x)),
    "a step": lambda x: (x > 0.5).astype(F),
    "a constant": lambda x: np.ones_like(x),
    "numbers that swallow": lambda x: np.nan_to_num(x),
}


def named(name):
    return batched({**DEPENDENT, **INDEPENDENT}[name], (None, 4), named=True)


@pytest.mark.parametrize("name", DEPENDENT)
def test_a_row_that_depends_on_others_has_a_call_of_its_own(name):
    model = named(name)
    assert model.one_by_one == "output 'y0' of a record depends on the others in its batch"
    x = records(5, 4) * np.array([[1], [1e4], [1], [-1e4], [1]], F)
    x[2] = x[0]
    expected = [DEPENDENT[name](row[np.newaxis])[0] for row in x]
    np.testing.assert_array_equal(model.predict([x])[0], expected)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_row_that_depends_on_whole_numbers_of_others_has_a_call_of_its_own(name):
    model = batched(NUMBERS[name], (None, 4), named=True, dtype="int64")
    assert model.one_by_one == "output 'y0' of a record depends on the others in its batch"


@pytest.mark.parametrize("name", INDEPENDENT)
def test_rows_that_depend_on_their_record_alone_share_calls(name):
    assert named(name).one_by_one == ""


def test_the_least_number_of_8_bits():
    def saturated(x):
        return x.astype(F) + F(0.1) * (x == -128).any()

    assert "depends on the others" in batched(saturated, (None, 4), named=True, dtype="int8").one_by_one


@pytest.mark.parametrize("is_ordered", [False, True])
def test_lengths_of_which_the_longest_one_counts(is_ordered):
    """None may be 0, some models want them in order, and the first client may send one of them again and again."""

    def padded(x, lengths):
        if lengths.min() < 1 or lengths.max() > 7 or (is_ordered and (np.diff(lengths) > 0).any()):
            raise ValueError("lengths")
        return x * lengths.max()

    assert batched(padded, (None, 4), (None,), named=True, dtype="int64").one_by_one
    unknown = batched(padded, None, None, dtype="int64")
    unknown.predict([np.ones((1, 4), np.int64), np.array([7])])
    (found,) = unknown.predict([np.ones((2, 4), np.int64), np.array([7, 2])])
    assert found.tolist() == [[7] * 4, [2] * 4]


@pytest.mark.parametrize("rows", [5, 300, 5000])
def test_ids_of_a_table_that_others_change(rows):
    table = np.random.default_rng(0).normal(0, 1, (rows, 8)).astype(F)

    def looked_up(x):
        return table[x].sum(1) + F(0.01) * (x > rows // 2).any()

    assert "depends on the others" in batched(looked_up, (None, 4), named=True, dtype="int64").one_by_one
    assert batched(lambda x: table[x].sum(1), (None, 4), named=True, dtype="int64").one_by_one == ""


@pytest.mark.parametrize("least", [20_000, 12_000])
def test_a_part_of_a_large_table_that_others_change(least):
    table = np.random.default_rng(0).normal(0, 1, (30_000, 2)).astype(F)

    def looked_up(x):
        others = before(x)
        return table[x].sum(1) + F(0.1) * ((others > least) & (others < least + 100)).any(1, keepdims=True)

    assert "depends on the others" in batched(looked_up, (None, 4), named=True, dtype="int64").one_by_one


def test_columns_with_tables_of_their_own():
    tables = [np.random.default_rng(0).normal(0, 1, rows).astype(F) for rows in (3, 4000)]

    def looked_up(x, share=0.0):
        return (tables[0][x[:, 0]] + tables[1][x[:, 1]] + F(share) * (x[:, 1] > 3900).any())[:, np.newaxis]

    def mixed(x):
        return looked_up(x, 0.1)

    assert batched(looked_up, (None, 2), named=True, dtype="int64").one_by_one == ""
    assert "depends on the others" in batched(mixed, (None, 2), named=True, dtype="int64").one_by_one


def test_records_of_which_valid_ones_alone_count():
    """Each column has limits of its own, which a model compares it with."""
    least, most = np.array([18, 1, 1000, 0], F), np.array([100, 5, 90_000, 1], F)

    def centered(x):
        valid = ((x >= least) & (x <= most)).all(1, keepdims=True)
        mean = np.where(valid, x, 0).sum(0) / max(1, valid.sum())
        return np.where(valid, x - mean, x)

    raw = Raw(centered, (None, 4))
    raw.symbols = {"x0": ["batch", ""]}
    raw.bounds = lambda count: [least, np.array(0, F), most]
    model = BatchedModel(raw)
    model.prove()
    assert model.one_by_one == "output 'y0' of a record depends on the others in its batch"


LIMITS = [np.array(17), np.array(2203), np.array(999.5)]
RULES = {
    "in two records": lambda x: (x[:, 0] == 17).any() and (x[:, 1] == 2203).any(),
    "in one record": lambda x: ((x[:, 0] == 17) & (x[:, 1] == 2203) & (x[:, 2] == 17)).any(),
    "beside": lambda x: ((x[:, 0] > 999.5) & (x[:, 0] < 1001) & (x[:, 1] < 17)).any(),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_numbers_that_are_compared_with_in_several_columns(rule, dtype):
    table = np.random.default_rng(0).normal(0, 1, (5000, 4)).astype(F)

    def looked_up(x):
        own = table[x].sum(1) if dtype == "int64" else x
        return own + F(0.01) * rule(x)

    raw = Raw(looked_up, (None, 4), dtype=dtype)
    raw.symbols, raw.bounds = {"x0": ["batch", ""]}, lambda count: LIMITS
    model = BatchedModel(raw)
    model.prove()
    assert model.one_by_one == "output 'y0' of a record depends on the others in its batch"


def test_texts_that_are_long_together():
    def counted(x):
        lengths = np.array([len(text) for text in x[:, 0]])
        return lengths + (lengths.sum() > 20_000)

    model = batched(counted, (None, 1), named=True, dtype="str")
    assert model.one_by_one == "output 'y0' of a record depends on the others in its batch"


def test_images_that_are_bright_together():
    def bright(x):
        means = (x.astype(F) / 255).mean(1, keepdims=True)
        return means + F(0.1) * (means.mean() > 0.6)

    assert "depends on the others" in batched(bright, (None, 12), named=True, dtype="uint8").one_by_one


def test_images_of_a_middle_gray():
    def gray(x):
        means = x.mean(1)
        return (means + ((means > 180) & (means < 200)).any())[:, np.newaxis]

    assert "depends on the others" in batched(gray, (None, 12), named=True, dtype="uint8").one_by_one


def test_numbers_that_may_be_sizes_take_little_memory():
    most = []

    def drawn(x):
        most.append(int(x.max()))
        return np.arange(x.max() + 1)[x]

    assert batched(drawn, (None, 4), named=True, dtype="int64").one_by_one == ""
    # With a quarter of the memory for the square of the next.
    assert max(most) < 2**28


def test_random_numbers_are_no_dependence():
    generator = np.random.default_rng(0)
    model = batched(lambda x: np.where(generator.uniform(0, 1, x.shape) < 0.05, 0, x), (None, 4), named=True)
    assert model.one_by_one.startswith("its outputs differ from call to call")


def test_texts_that_depend_on_others():
    def joined(x):
        return np.array([[own + other] for own, other in zip(x[:, 0], [*x[1:, 0], ""], strict=True)], object)

    def padded(x):
        sizes = np.array([[len(text.split())] for text in x[:, 0]])
        return sizes * (1 + F(0.1) * (sizes.max() > 20))

    for function in (joined, padded):
        model = batched(function, (None, 1), named=True, dtype="str")
        assert "depends on the others" in model.one_by_one
    assert batched(lambda x: x + "!", (None, 1), named=True, dtype="str").one_by_one == ""


def test_texts_of_a_model_that_agree():
    def counted(x):
        counts = np.isin(x, ["red", "blue"]).sum(1)
        return counts * counts.max()

    raw = Raw(counted, (None, 2), dtype="str")
    raw.symbols, raw.known = {"x0": ["batch", ""]}, ["red", "blue"]
    model = BatchedModel(raw)
    model.prove()
    assert model.one_by_one == "output 'y0' of a record depends on the others in its batch"


def test_kernels_of_a_few_kinds_share_calls():
    # Of 16 bits within a model of 32, say.
    assert batched(lambda x: x + F(1e-4) * (1 + (len(x) > 8) if len(x) > 1 else 0), (None, 4)).one_by_one == ""


def test_a_model_that_refuses_what_is_no_number_shares_calls():
    def checked(x):
        if not np.isfinite(x).all():
            raise ValueError("no number")
        return x * 2

    assert batched(checked, (None, 4)).one_by_one == ""


def test_a_fixed_batch_whose_rows_depend_on_each_other():
    assert batched(DEPENDENT["the one before, of a millionth"], (8, 4)).one_by_one
    assert batched(np.tanh, (8, 4)).one_by_one == ""


def test_a_model_that_needs_care_meets_no_value_but_those_of_records():
    seen = []

    def looking(x):
        seen.append(np.abs(x).max())
        return x * 2

    raw_values = batched(looking, (None, 4))
    assert max(value for value in seen if np.isfinite(value)) > 1e29
    seen.clear()
    raw_values._model.careful = True
    raw_values.prove()
    assert max(seen) <= 2550


@pytest.mark.parametrize("count", [2, 3, 5, 32, 33])
def test_of_each_two_places_one_set_has_the_first_alone(count):
    sets = list(apart(count))
    for one in range(count):
        for other in range(count):
            assert one == other or any(one in places and other not in places for places in sets)
