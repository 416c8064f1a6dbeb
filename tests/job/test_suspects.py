"""The search for culprits, behind new batches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cluster_serving.job.computation import Computation
from cluster_serving.job.suspects import Suspects


def flow(more=True, limit=64):
    return SimpleNamespace(more=more, limit=limit, searches=False)


def failed(*steps):
    """A batch of so many requests whose search takes these steps."""
    return Computation(["request"] * 8, {}, {}, lambda *_: None, iter(steps))


@pytest.fixture
def suspects():
    return Suspects()


def test_without_new_requests_the_search_goes_on(suspects):
    suspects.add(failed({0: "a"}, None, {1: "b"}), 8, 0.1)
    found = []
    while (suspect := suspects.next(flow(more=False))) is not None:
        answers, _ = suspect.step()
        suspects.took(suspect, len(answers), 10.0)
        found += answers
    assert found == ["a", "b"]


def test_while_new_requests_wait_the_search_has_a_part_of_their_time(suspects):
    suspects.add(failed(None, None, {0: "a"}), 8, seconds=0.4)
    slot = flow()
    suspect = suspects.next(slot)
    suspects.took(suspect, 0, seconds=0.2)
    assert suspects.next(slot) is None
    # Flow control then leaves the slot one more batch, with which the search goes on.
    assert slot.searches
    # Another batch pays for the next step.
    suspects.add(Computation([], {}, {}, lambda *_: None), 0, seconds=0.8)
    assert suspects.next(slot) is suspect
    assert not slot.searches


def test_a_search_that_holds_half_of_the_slot_waits_no_longer(suspects):
    suspects.add(failed(None, None), 32, seconds=0.0)
    assert suspects.next(flow(limit=64)) is not None


def test_without_flow_control_nothing_is_left_waiting(suspects):
    suspects.add(failed(None), 8, seconds=0.0)
    assert suspects.next(None) is not None


def test_a_batch_without_failures_is_no_suspect(suspects):
    suspects.add(Computation([], {}, {}, lambda *_: None), 0, seconds=0.1)
    assert suspects.next(flow(more=False)) is None
