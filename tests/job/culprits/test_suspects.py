"""The search for culprits, behind new batches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cluster_serving.job.computation import Computation
from cluster_serving.job.culprits.suspects import Suspects


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


def request(uri):
    return SimpleNamespace(uri=uri)


def test_what_is_put_off_has_a_quarter_of_the_slot(suspects):
    slot = flow(limit=16)
    assert suspects.room(slot) == 4
    suspects.put_off([request("a")] * 3, iter([]))
    assert suspects.room(slot) == 1
    suspects.put_off([request("a")], iter([]))
    assert suspects.room(slot) == 0
    # A slot of single requests has room for one.
    assert Suspects().room(flow(limit=2)) == 1


def test_requests_of_others_are_taken_out_of_a_search(suspects):
    requests = [request(uri) for uri in ("bad1", "good1", "bad2", "good2")]
    suspects.put_off(requests, iter([None, {3: "answer"}, None]))
    searched = suspects.next(None)
    for _ in range(2):
        answers, seconds = searched.step()
        suspects.took(searched, len(answers), seconds)
        if not answers:
            assert suspects.next(None) is searched
    begun = []

    def steps(group):
        begun.append([each.uri for each in group])
        return iter([])

    suspects.regroup(lambda each: "bad" if each.uri.startswith("bad") else "", steps)
    assert begun == [["good1"], ["bad1", "bad2"]]
    assert [each.uri for each in suspects.next(None).requests] == ["good1"]
    assert suspects.room(flow(limit=64)) == 16 - 3
