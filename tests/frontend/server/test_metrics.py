"""Timers of the metrics in the form of the original."""

from cluster_serving.frontend.server.metrics import Timer, timer_json


def test_a_timer_gives_milliseconds_and_percentiles():
    timer = Timer()
    assert timer_json("t", timer.part())["mean"] == 0
    for number in range(1, 101):
        timer.update((number + 0.75) / 1000)
    metric = timer_json("zoo.t", timer.part())
    assert (metric["name"], metric["count"], metric["min"], metric["max"]) == ("zoo.t", 100, 1, 100)
    assert isinstance(metric["min"], int)
    assert isinstance(metric["max"], int)
    assert (metric["median"], metric["_75thPercentile"], metric["_99thPercentile"]) == (50.75, 75.75, 99.75)
