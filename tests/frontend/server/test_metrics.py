"""Timers of the metrics in the form of the original."""

from cluster_serving.frontend.server import metrics
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


def test_the_durations_of_a_process_that_has_ended_are_counted_but_not_the_latest():
    ended, going = metrics.Metrics(), metrics.Metrics()
    ended.redis("put", 9)
    going.redis("put", 1)
    rows = metrics.as_json(metrics.total([going.part(0, 0), metrics.counted(ended.part(0, 0))]))
    (row,) = (row for row in rows if row["name"] == "zoo.serving.redis.put")
    assert (row["count"], row["max"]) == (2, 1000)


def test_the_steps_through_redis_begin_at_0():
    text = metrics.as_text(metrics.Metrics().part(0, 0), {}).decode()
    for step in ("put", "get", "wait"):
        assert f'cluster_serving_http_redis_seconds_count{{step="{step}"}} 0.0' in text
