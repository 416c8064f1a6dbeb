import numpy as np

from cluster_serving.bench.load.recorder import Checker

REFERENCES = [np.array([1.0, 0.0]), np.array([0.0, 1.0])]


def test_an_answer_that_was_rounded_otherwise_is_right():
    assert Checker(REFERENCES).is_right(0, np.array([0.98, 0.01]))


def test_the_answer_to_another_request_is_wrong():
    assert not Checker(REFERENCES).is_right(0, REFERENCES[1])


def test_garbage_is_wrong():
    checker = Checker(REFERENCES)
    assert not checker.is_right(0, np.array([np.nan, 0.0]))
    assert not checker.is_right(0, np.array([1.0]))
    assert not checker.is_right(0, np.array([9.0, 0.0]))


def test_nothing_can_be_checked_if_all_answers_are_equal():
    assert not Checker([REFERENCES[0], REFERENCES[0]]).is_possible
    assert Checker(REFERENCES).is_possible


def test_numbers_that_are_none_are_right_where_the_reference_has_them():
    references = [np.array([1.0, np.nan, np.inf]), np.array([2.0, np.nan, np.inf])]
    checker = Checker(references)
    assert checker.is_possible
    assert checker.is_right(0, references[0].copy())
    assert not checker.is_right(0, references[1])
    assert not checker.is_right(0, np.array([1.0, 0.0, np.inf]))
