from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.bench.load.recorder import Checker, LoadRecorder
from cluster_serving.bench.load.tally import LoadTally


def recorder():
    return LoadRecorder(1, None, Checker([]), 1)


def answer(recorder, name):
    recorder.answered(name, 0.0, 0, lambda: None)


def test_what_is_not_answered_is_lost():
    requests = recorder()
    for uri in "abcd":
        requests.send(uri)
    answer(requests, "a")
    requests.failed("b", "QUEUE_FULL")
    requests.lost("c")
    tally = requests.tally
    assert (tally.sent, tally.answered, tally.errors.total(), tally.lost) == (4, 1, 1, 2)


def test_a_second_answer_counts_neither_twice_nor_for_another_request():
    requests = recorder()
    requests.send("a")
    for name in ("a", "a", "never sent"):
        answer(requests, name)
    tally = requests.tally
    assert (tally.answered, tally.repeated, tally.lost) == (1, 2, 0)
    assert requests.take()[0].shape == (2, 1)


@given(st.lists(st.sampled_from(["answered", "failed", "lost", "nothing"])))
def test_every_request_is_answered_failed_or_lost(ends):
    recorders = [recorder(), recorder()]
    for number, end in enumerate(ends):
        requests = recorders[number % 2]
        requests.send(number)
        if end == "answered":
            answer(requests, number)
        elif end == "failed":
            requests.failed(number, "INTERNAL")
        elif end == "lost":
            requests.lost(number)
    total = sum((requests.tally for requests in recorders), LoadTally())
    assert (total.sent, total.answered) == (len(ends), ends.count("answered"))
    assert (total.errors.total(), total.lost) == (ends.count("failed"), ends.count("lost") + ends.count("nothing"))
