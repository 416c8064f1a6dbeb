"""Clients whose requests make batches fail, beside others."""

from tests.support.fixtures import both_modes


def test_requests_that_make_batches_fail_are_kept_from_those_of_other_callers(served, front, tmp_path):
    both_modes.failing_requests_are_apart(served, front, tmp_path)
