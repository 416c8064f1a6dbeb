from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.bench.load.tally import Tally


def test_what_is_not_answered_is_lost():
    tally = Tally()
    for uri in "abcd":
        tally.send(uri)
    tally.answer("a")
    tally.fail("b", "QUEUE_FULL")
    tally.lose("c")
    assert (tally.sent, tally.answered, tally.errors.total(), tally.lost) == (4, 1, 1, 2)


def test_a_second_answer_counts_neither_twice_nor_for_another_request():
    tally = Tally()
    tally.send("a")
    assert tally.answer("a")
    assert not tally.answer("a")
    assert not tally.answer("never sent")
    assert (tally.answered, tally.repeated, tally.lost) == (1, 2, 0)


@given(st.lists(st.sampled_from(["answer", "fail", "lose", "nothing"])))
def test_every_request_is_answered_failed_or_lost(ends):
    tallies = [Tally(), Tally()]
    for number, end in enumerate(ends):
        tally = tallies[number % 2]
        tally.send(number)
        if end == "fail":
            tally.fail(number, "INTERNAL")
        elif end != "nothing":
            getattr(tally, end)(number)
    total = Tally()
    for tally in tallies:
        total.add(tally)
    assert total.sent == total.answered + total.errors.total() + total.lost == len(ends)
