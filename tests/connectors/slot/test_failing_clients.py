"""What a slot learns of clients whose requests make batches fail."""

import pytest

from cluster_serving.connectors.slot.failing_clients import FailingClients


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def failing(clock):
    return FailingClients(clock)


def test_a_client_is_set_apart_by_its_second_failure(failing):
    assert not failing
    assert not failing.blame("a")
    assert failing and not failing.is_apart("a")
    assert failing.blame("a")
    assert failing.sends_apart("a") and not failing.sends_apart("b")
    # It is apart already.
    assert not failing.blame("a")


def test_a_client_that_fails_seldom_shares_batches_with_others(failing):
    for _ in range(2):
        failing.blame("a")
    for _ in range(64):
        failing.sends_apart("a")
    assert not failing.is_apart("a")


def test_good_records_of_a_request_count_as_much_as_bad_ones(failing):
    for _ in range(2):
        failing.blame("a")
    assert not failing.sends_apart("a", 64) and not failing.mostly_fails("a")


def test_a_client_without_further_failures_is_forgotten(failing, clock):
    for _ in range(3):
        failing.blame("a")
    clock.now = 31
    assert not failing.sends_apart("a")
    clock.now = 62
    assert not failing.sends_apart("a")
    assert not failing


def test_a_client_most_of_whose_requests_fail_is_told_from_one_that_fails_at_times(failing):
    for _ in range(2):
        failing.blame("a")
    assert failing.mostly_fails("a")
    for _ in range(5):
        failing.sends_apart("a")
    assert failing.is_apart("a") and not failing.mostly_fails("a")


def test_other_clients_count_while_they_send(failing, clock):
    for _ in range(2):
        failing.blame("a")
    failing.sends_apart("a")
    assert not failing.beside_others("a")
    failing.sends_apart("b")
    assert failing.beside_others("a")
    clock.now = 6
    failing.sends_apart("a")
    assert not failing.beside_others("a")


def test_a_client_is_no_other_to_itself(failing):
    failing.blame("a")
    assert not failing.sends_apart("a") and not failing.beside_others("a")
    for name in ("b", "a"):
        failing.sends_apart(name)
        assert failing.beside_others("a")


def test_clients_without_a_name_may_be_several(failing):
    failing.blame("")
    failing.sends_apart("")
    assert failing.beside_others("")


def test_clients_that_change_their_names_take_no_memory(failing):
    for number in range(5000):
        failing.blame(str(number))
    assert len(failing) <= 1000
