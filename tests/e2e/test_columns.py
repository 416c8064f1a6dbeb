"""Requests of many records in a job of process mode; `tests/slot` has those of thread mode."""

from tests.support.fixtures import both_modes


def test_each_record_of_a_request_is_answered_as_if_it_came_alone(started, cluster_db, front, tmp_path):
    both_modes.records_are_alone(started, cluster_db, front, tmp_path, executionMode="process")
