"""What is reported of a server whose model is replaced under load."""

import time

import pytest

from cluster_serving.bench.load import payload
from cluster_serving.bench.load.target import Endpoint
from cluster_serving.bench.suite.steady import FAILED, NEW, OLD, WRONG, SentRequest, SteadyLoad, figures, measure_change


def test_the_time_without_answers_is_that_of_the_update():
    old = [SentRequest(at - 0.5, float(at), OLD) for at in range(10)]
    gone = [SentRequest(9, 11, FAILED), SentRequest(9, 12, WRONG)]
    new = [SentRequest(10, 15, NEW), SentRequest(15, 16, NEW), SentRequest(16, 16.5, NEW), SentRequest(30, 40, NEW)]
    found = figures([*old, *gone, *new], since=2, begin=8.5, end=14)
    assert (found["requests"], found["failed"], found["wrong"]) == (16, 1, 1)
    assert found["before_ms"]["p99"] == 500
    assert (found["gap_ms"], found["wait_ms"]) == (6000, 5000)
    # The command ended first, and then the new version answered.
    assert found["update_s"] == 6.5


def test_a_change_that_leaves_the_version_lasts_until_the_load_ends():
    answers = [SentRequest(at / 10 - 0.1, at / 10, OLD) for at in range(100) if not 50 < at < 57]
    found = figures(answers, since=2, begin=5, end=5)
    assert (found["requests"], found["failed"], found["gap_ms"]) == (94, 0, 700)


@pytest.mark.usefixtures("echo")
def test_an_answer_tells_which_version_gave_it(redis_server, job):
    records = payload.random_records("x", (3,), "float32")
    inputs = [record["x"] for record in records]
    endpoint = Endpoint("redis", redis_server.url, job, records)
    for outcome, old, new in (
        (OLD, inputs, [x + 1 for x in inputs]),
        (NEW, [x + 1 for x in inputs], inputs),
        (WRONG, inputs[::-1], [x + 1 for x in inputs]),
    ):
        load = SteadyLoad(endpoint, 2, old, new)
        found = measure_change(load, lambda: time.sleep(0.1), 0.1)
        assert {request.outcome for request in load.requests} == {outcome}
        assert found["requests"] == len(load.requests) > 0
